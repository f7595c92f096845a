// Ranks that disagree, as threads: in their settings, their version, the collectives of their step and
// their order, and the sizes of one collective.
#include "gt/dist/agreement.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "gt/base/error.h"
#include "gt/dist/collectives.h"
#include "gt/ir/text.h"
#include "gt/job/config.h"

namespace gt::agreement_test {
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

  // `rank` fails with `message`, for which its last words are `advice`; the others hear of it.
  static void ExpectDisagreement(const Said& said, const std::string& message,
                                 const std::string& advice, size_t rank = 1) {
    EXPECT_EQ(said.by_rank[rank].substr(0, 10 + message.size()), "GT-E0805: " + message);
    EXPECT_NE(said.by_rank[rank].find(advice), std::string::npos) << said.by_rank[rank];
    std::string passed_on =
        fmt::format("GT-E0808: rank {} ended the job: GT-E0805: {}", rank, message);
    for (size_t other = 0; other < said.by_rank.size(); ++other) {
      if (other == rank) continue;
      EXPECT_EQ(said.by_rank[other].substr(0, passed_on.size()), passed_on);
    }
    EXPECT_EQ(said.thrown, said.by_rank[rank]);
  }

  static const Group& Make(World& world, const char* name, std::vector<int64_t> ranks) {
    Group group;
    group.name = name;
    group.ranks = std::move(ranks);
    auto place = std::find(group.ranks.begin(), group.ranks.end(), world.rank());
    group.index = place - group.ranks.begin();
    return world.MakeGroup(group);
  }

  // Each rank with its own step, over groups of all ranks.
  Said Steps(const std::function<std::string(int64_t)>& text_of) const {
    return Run([&](World& world) {
      for (const char* name : {"tp", "fsdp", "ep"}) Make(world, name, {0, 1, 2});
      AgreeOnCollectives(world, *Parse(text_of(world.rank())));
    });
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
  ExpectDisagreement(said,
                     "the version of the program of rank 1 differs from that of rank 0 in line 1: "
                     "'0.2.0 of today' here, '0.1.0 of yesterday' there",
                     "run the same build on every machine");
}

TEST_F(AgreementTest, AnOptionIsNamed) {
  Said said = Run([&](World& world) {
    Config config = config_;
    if (world.rank() == 1) config.optimizer.lr = 0.0625;
    AgreeOnConfig(world, config);
  });
  ExpectDisagreement(said, "the configuration of rank 1 differs from that of rank 0 in line ",
                     "start every rank with the same flags and config files");
  EXPECT_NE(said.by_rank[1].find("'lr = 0.0625' here"), std::string::npos) << said.by_rank[1];
}

TEST_F(AgreementTest, ATextThatEndsEarlyDiffers) {
  Said said = Run([&](World& world) {
    AgreeOnText(world, "weather", world.rank() == 1 ? "sun\n" : "sun\nrain\n",
                "look out of the same window");
  });
  ExpectDisagreement(said,
                     "the weather of rank 1 differs from that of rank 0 in line 2: '(nothing)' "
                     "here, 'rain' there",
                     "look out of the same window");
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
// The step with one text replaced by another.
std::string With(const std::string& from, const std::string& to, std::string step = kStep) {
  size_t place = step.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return step.replace(place, from.size(), to);
}

// The same collectives in another order.
constexpr const char* kReordered = R"(
graph @g(%x: input "x" f32[4], %y: input "y" bf16[2, 8]) {
  %c = _c10d_functional::all_reduce(%y, reduce_op = "sum", group_name = "fsdp") : bf16[2, 8] {module = "layers.1"}
  %a = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "tp") : f32[4] {module = "layers.0"}
  %b = _c10d_functional::wait_tensor(%a) : f32[4]
  %d = _c10d_functional::wait_tensor(%c) : bf16[2, 8]
  return result "b" %b, result "d" %d
}
)";
// Launched in the order of kReordered, waited for in the other.
constexpr const char* kWaitsReordered = R"(
graph @g(%x: input "x" f32[4], %y: input "y" bf16[2, 8]) {
  %c = _c10d_functional::all_reduce(%y, reduce_op = "sum", group_name = "fsdp") : bf16[2, 8] {module = "layers.1"}
  %a = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "tp") : f32[4] {module = "layers.0"}
  %d = _c10d_functional::wait_tensor(%c) : bf16[2, 8]
  %b = _c10d_functional::wait_tensor(%a) : f32[4]
  return result "b" %b, result "d" %d
}
)";
constexpr const char* kOtherCollectives = "their steps have different collectives: files that";
constexpr const char* kOtherOrder = "both have the same collectives and planned different orders:";

TEST_F(AgreementTest, TheSequenceHasOneLineForEachCollectiveAndWait) {
  EXPECT_EQ(CollectiveSequence(*Parse(kWaitsReordered)),
            "_c10d_functional::all_reduce on 'fsdp' bf16 of layers.1\n"
            "_c10d_functional::all_reduce on 'tp' f32 of layers.0\n"
            "wait for collective 1, _c10d_functional::all_reduce on 'fsdp' of layers.1, result 0\n"
            "wait for collective 2, _c10d_functional::all_reduce on 'tp' of layers.0, result 0\n");
}

TEST_F(AgreementTest, SizesAreListedByGroup) {
  const std::map<std::string, std::string> expected = {
      {"fsdp", "collective 1, _c10d_functional::all_reduce of layers.1: [2, 8]\n"},
      {"tp", "collective 2, _c10d_functional::all_reduce of layers.0: [4]\n"}};
  EXPECT_EQ(CollectiveSizes(*Parse(kReordered)), expected);
}

TEST_F(AgreementTest, StepsThatCommunicateAlikeAreAccepted) {
  EXPECT_EQ(Steps([](int64_t) { return kStep; }).thrown, "");
}

TEST_F(AgreementTest, AnotherGroupIsRefused) {
  Said said = Steps([](int64_t rank) {
    return rank == 1 ? With("group_name = \"fsdp\"", "group_name = \"ep\"") : kStep;
  });
  ExpectDisagreement(said,
                     "the sequence of collectives of rank 1 differs from that of rank 0 in line 3: "
                     "'_c10d_functional::all_reduce on 'ep' bf16 of layers.1' here, "
                     "'_c10d_functional::all_reduce on 'fsdp' bf16 of layers.1' there",
                     kOtherCollectives);
}

TEST_F(AgreementTest, AnotherDtypeModuleOrKindIsRefused) {
  const std::string wide = With("bf16[2, 8]) {", "f32[2, 8]) {");
  const std::string changed[] = {
      With("%d = _c10d_functional::wait_tensor(%c) : bf16",
           "%d = _c10d_functional::wait_tensor(%c) : f32",
           With("\"fsdp\") : bf16", "\"fsdp\") : f32", wide)),
      With("layers.1", "layers.2"),
      With("all_reduce(%y, reduce_op = \"sum\"", "broadcast(%y, src = 0"),
  };
  for (const std::string& step : changed) {
    Said said = Steps([&](int64_t rank) { return rank == 1 ? step : kStep; });
    ExpectDisagreement(
        said, "the sequence of collectives of rank 1 differs from that of rank 0 in line 3: ",
        kOtherCollectives);
  }
}

TEST_F(AgreementTest, AnotherOrderOfLaunchesIsAnotherPlan) {
  Said said = Steps([](int64_t rank) { return rank == 1 ? kReordered : kStep; });
  ExpectDisagreement(
      said,
      "the sequence of collectives of rank 1 differs from that of rank 0 in line 1: ", kOtherOrder);
}

// A sum of gloo exchanges a second time when it is waited for: ranks that wait in different orders
// would each be in another exchange.
TEST_F(AgreementTest, AnotherOrderOfWaitsIsAnotherPlan) {
  Said said = Steps([](int64_t rank) { return rank == 1 ? kWaitsReordered : kReordered; });
  ExpectDisagreement(said,
                     "the sequence of collectives of rank 1 differs from that of rank 0 in line 3: "
                     "'wait for collective 1, _c10d_functional::all_reduce on 'fsdp' of layers.1, "
                     "result 0' here, 'wait for collective 2,",
                     kOtherOrder);
}

// A plan that is made anew is compared anew: nothing is left of the first comparison.
TEST_F(AgreementTest, EveryPlanIsComparedForItself) {
  Said said = Run([&](World& world) {
    for (const char* name : {"tp", "fsdp"}) Make(world, name, {0, 1, 2});
    for (int i = 0; i < 5; ++i) {
      AgreeOnCollectives(world, *Parse(i % 2 == 0 ? kStep : kReordered));
    }
    AgreeOnCollectives(world, *Parse(world.rank() == 1 ? kStep : kReordered));
  });
  ExpectDisagreement(said, "the sequence of collectives of rank 1 differs", kOtherOrder);
}

TEST_F(AgreementTest, GroupsThatTheJobDoesNotHaveAreNamed) {
  Said said = Run([&](World& world) {
    Make(world, "tp", {0, 1, 2});
    AgreeOnCollectives(world, *Parse(kStep));
  });
  EXPECT_NE(said.thrown.find("a process group 'fsdp' that this job does not have"),
            std::string::npos)
      << said.thrown;
}

// Two shards, each held by two replicas: ranks 0 and 2 have the longer one, ranks 1 and 3 the shorter.
class ReplicasTest : public AgreementTest {
 protected:
  void SetUp() override {
    AgreementTest::SetUp();
    config_.ranks = 4;
  }
  Said Agree(const std::function<int64_t(int64_t)>& rows_of) const {
    return Run([&](World& world) {
      const int64_t rank = world.rank(), shard = rank % 2, replica = rank / 2;
      Make(world, "shard", {2 * replica, 2 * replica + 1});
      Make(world, "replicas", {shard, shard + 2});
      std::string rows = std::to_string(rows_of(rank));
      AgreeOnCollectives(world, *Parse(fmt::format(R"(
graph @g(%x: input "x" f32[6, 2], %y: input "y" f32[{0}, 2]) {{
  %a = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "shard") : f32[6, 2] {{module = "layers.0"}}
  %b = _c10d_functional::wait_tensor(%a) : f32[6, 2]
  %c = _c10d_functional::all_reduce(%y, reduce_op = "sum", group_name = "replicas") : f32[{0}, 2] {{module = "layers.1"}}
  %d = _c10d_functional::wait_tensor(%c) : f32[{0}, 2]
  return result "b" %b, result "d" %d
}}
)",
                                                   rows)));
    });
  }
};

TEST_F(ReplicasTest, SizesOfDifferentGroupsMayDiffer) {
  EXPECT_EQ(Agree([](int64_t rank) { return rank % 2 == 0 ? 3 : 2; }).thrown, "");
  EXPECT_EQ(Agree([](int64_t rank) { return rank % 2 == 0 ? 3 : 0; }).thrown, "");
}

TEST_F(ReplicasTest, SizesOfOneGroupMustBeEqual) {
  // Rank 3 is compared with rank 1, its own group's first, and not with rank 0, whose size it has.
  Said said = Agree([](int64_t rank) { return rank == 1 ? 2 : 3; });
  ExpectDisagreement(said,
                     "ranks 3 and 1 of group 'replicas' bring different sizes to one collective: "
                     "'collective 2, _c10d_functional::all_reduce of layers.1: [3, 2]' on rank 3, "
                     "'collective 2, _c10d_functional::all_reduce of layers.1: [2, 2]' on rank 1",
                     "files that decide sizes (tokenizer, --model.hf_path)", 3);
}

// gloo finds out in a thread of its own, from where no rank can be unwound: the process ends, with a
// message that names the collective.
TEST_F(AgreementTest, ACollectiveOfDifferentSizesFails) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto gather = [](World& world) {
    const Group& made = Make(world, "all", {0, 1, 2});
    AllGather(at::ones({4}), &made);
    AllGather(at::ones({world.rank() == 1 ? 4096 : 4}), &made);
  };
  EXPECT_EXIT(World::Run(config_, gather), ::testing::ExitedWithCode(1),
              "GT-E0807: rank [0-2] was in collective [0-9]+ .all_gather on 'all'.*disagree.*"
              "doesn't match expected size");
}

}  // namespace
}  // namespace gt::agreement_test
