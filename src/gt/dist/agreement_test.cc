// Ranks that disagree, as threads: in their settings, their version, the collectives of their step,
// and the sizes of one collective.
#include "gt/dist/agreement.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "gt/base/error.h"
#include "gt/dist/collectives.h"
#include "gt/ir/text.h"

namespace gt {
namespace {

class AgreementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The process that ends in a death test is started anew, and leaves its files here as well.
    std::filesystem::path own =
        std::filesystem::temp_directory_path() / fmt::format("gt_agreement_test_{}", getpid());
    setenv("GT_AGREEMENT_TEST_FOLDER", own.c_str(), /*replace=*/0);
    folder_ = getenv("GT_AGREEMENT_TEST_FOLDER");
    config_.ranks = 3;
    config_.device = DeviceChoice::kCpu;
    config_.comm.train_timeout_seconds = 3;
    config_.dump_folder = folder_.string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Said {
    std::vector<std::string> by_rank;
    std::string thrown;
  };
  // What each rank meets in `body`, and what World::Run makes of it.
  Said Run(const std::function<void(World&)>& body) const {
    Said said;
    said.by_rank.resize(static_cast<size_t>(config_.ranks));
    try {
      World::Run(config_, [&](World& world) {
        try {
          body(world);
        } catch (const Error& error) {
          said.by_rank[static_cast<size_t>(world.rank())] = error.what();
          throw;
        }
      });
    } catch (const Error& error) {
      said.thrown = error.what();
    }
    return said;
  }

  static void ExpectDisagreement(const Said& said, const std::string& message) {
    EXPECT_EQ(said.by_rank[1].substr(0, 10 + message.size()), "GT-E0805: " + message);
    std::string passed_on = "GT-E0808: rank 1 ended the job: GT-E0805: " + message;
    for (size_t rank : {0, 2}) {
      EXPECT_EQ(said.by_rank[rank].substr(0, passed_on.size()), passed_on);
    }
    EXPECT_EQ(said.thrown, said.by_rank[1]);
  }

  Config config_;
  std::filesystem::path folder_;
};

TEST_F(AgreementTest, RanksThatAgreeGoOn) {
  Said said = Run([&](World& world) {
    AgreeOnConfig(world, config_);
    AgreeOnText(world, "weather", "sun\nrain\n");
  });
  EXPECT_EQ(said.thrown, "");
}

TEST_F(AgreementTest, AnotherVersionIsRefused) {
  Said said = Run([&](World& world) {
    AgreeOnConfig(world, config_, world.rank() == 1 ? "0.2.0 of today" : "0.1.0 of yesterday");
  });
  ExpectDisagreement(
      said,
      "the configuration of rank 1 differs from that of rank 0 in line 1: 'version = "
      "0.2.0 of today' here, 'version = 0.1.0 of yesterday' there");
}

TEST_F(AgreementTest, AnOptionIsNamed) {
  Said said = Run([&](World& world) {
    Config config = config_;
    if (world.rank() == 1) config.optimizer.lr = 0.0625;
    AgreeOnConfig(world, config);
  });
  ExpectDisagreement(said, "the configuration of rank 1 differs from that of rank 0 in line ");
  EXPECT_NE(said.by_rank[1].find("'lr = 0.0625' here"), std::string::npos) << said.by_rank[1];
}

TEST_F(AgreementTest, ATextThatEndsEarlyDiffers) {
  Said said = Run([&](World& world) {
    AgreeOnText(world, "weather", world.rank() == 1 ? "sun\n" : "sun\nrain\n");
  });
  ExpectDisagreement(said,
                     "the weather of rank 1 differs from that of rank 0 in line 2: '(nothing)' "
                     "here, 'rain' there");
}

constexpr const char* kStep = R"(
graph @g(%x: input "x" f32[4], %y: input "y" bf16[2, 8]) {
  %a = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "tp") : f32[4] {module = "layers.0"}
  %b = _c10d_functional::wait_tensor(%a) : f32[4]
  %c = _c10d_functional::all_reduce(%y, reduce_op = "sum", group_name = "fsdp") : bf16[2, 8] {module = "layers.1"}
  %d = _c10d_functional::wait_tensor(%c) : bf16[2, 8]
  return result "b" %b, result "d" %d
}
)";
// The second collective goes to another group.
constexpr const char* kOtherStep = R"(
graph @g(%x: input "x" f32[4], %y: input "y" bf16[2, 8]) {
  %a = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "tp") : f32[4] {module = "layers.0"}
  %b = _c10d_functional::wait_tensor(%a) : f32[4]
  %c = _c10d_functional::all_reduce(%y, reduce_op = "sum", group_name = "ep") : bf16[2, 8] {module = "layers.1"}
  %d = _c10d_functional::wait_tensor(%c) : bf16[2, 8]
  return result "b" %b, result "d" %d
}
)";

TEST_F(AgreementTest, TheSequenceHasOneLineForEachCollective) {
  EXPECT_EQ(CollectiveSequence(*Parse(kStep)),
            "_c10d_functional::all_reduce on 'tp' f32[4] of layers.0\n"
            "_c10d_functional::all_reduce on 'fsdp' bf16[2, 8] of layers.1\n");
}

TEST_F(AgreementTest, StepsThatCommunicateDifferentlyAreRefused) {
  Said said = Run([&](World& world) {
    AgreeOnCollectives(world, *Parse(world.rank() == 1 ? kOtherStep : kStep));
  });
  ExpectDisagreement(said,
                     "the sequence of collectives of rank 1 differs from that of rank 0 in line 2: "
                     "'_c10d_functional::all_reduce on 'ep' bf16[2, 8] of layers.1' here, "
                     "'_c10d_functional::all_reduce on 'fsdp' bf16[2, 8] of layers.1' there");
}

// gloo finds out in a thread of its own, from where no rank can be unwound: the process ends, with a
// message that names the collective.
TEST_F(AgreementTest, ACollectiveOfDifferentSizesFails) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto gather = [](World& world) {
    Group group;
    group.name = "all";
    group.ranks = {0, 1, 2};
    group.index = world.rank();
    const Group& made = world.MakeGroup(group);
    AllGather(at::ones({4}), &made);
    AllGather(at::ones({world.rank() == 1 ? 4096 : 4}), &made);
  };
  EXPECT_EXIT(World::Run(config_, gather), ::testing::ExitedWithCode(1),
              "GT-E0807: rank [0-2] was in collective [0-9]+ .all_gather on 'all'.*disagree.*"
              "doesn't match expected size");
}

}  // namespace
}  // namespace gt
