// On which meshes a job is placed, and what it is told where there is no placement.
#include "gt/compile/find_placement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/job/config.h"
#include "gt/testing/small_placement.h"

namespace gt::find_placement_test {
namespace {

struct Degrees {
  int64_t replicate = 1, shard = -1, context = 1, tensor = 1, expert = 1;
};

std::vector<std::string> Meshes(const Degrees& degrees, int64_t ranks, const char* mesh = "auto") {
  Config config;
  config.mesh = mesh;
  config.parallelism.data_parallel_replicate_degree = degrees.replicate;
  config.parallelism.data_parallel_shard_degree = degrees.shard;
  config.parallelism.context_parallel_degree = degrees.context;
  config.parallelism.tensor_parallel_degree = degrees.tensor;
  config.parallelism.expert_parallel_degree = degrees.expert;
  std::vector<std::string> names;
  for (const placement::DeviceMesh& one : MeshesOf(config, ranks)) names.push_back(one.ToString());
  return names;
}

using Names = std::vector<std::string>;

TEST(PlacementMeshes, DegreesAreAxes) {
  EXPECT_EQ(Meshes({.tensor = 8}, 64), Names{"8x8"});
  EXPECT_EQ(Meshes({.tensor = 8}, 8), Names{"8"});
  EXPECT_EQ(Meshes({.shard = 64}, 64), Names{"64"});
  EXPECT_EQ(Meshes({.replicate = 2, .context = 4, .tensor = 2}, 64), Names{"2x4x4x2"});
  EXPECT_EQ(Meshes({.tensor = 4}, 64, "2x32"), Names{"2x32"});
}

// Experts are spread over the last of the ranks that shard.
TEST(PlacementMeshes, ExpertsHaveAnAxis) {
  EXPECT_EQ(Meshes({.expert = 8}, 64), Names{"8x8"});
  EXPECT_EQ(Meshes({.expert = 64}, 64), Names{"64"});
  EXPECT_EQ(Meshes({.replicate = 2, .expert = 4}, 24), Names{"2x3x4"});
  EXPECT_EQ(Meshes({.tensor = 4, .expert = 4}, 64), Names{"16x4"});
  EXPECT_EQ(Meshes({.tensor = 4, .expert = 16}, 64), Names{"4x4x4"});
  EXPECT_EQ(Meshes({.tensor = 4, .expert = 2}, 64), Names{"16x4"});
  // No mesh has five axes.
  EXPECT_EQ(Meshes({.replicate = 2, .context = 2, .tensor = 2, .expert = 8}, 64), Names{"2x8x2x2"});
}

TEST(PlacementMeshes, AreTriedIfNothingIsSaid) {
  const Names all = Meshes({}, 16);
  for (const char* mesh : {"16", "2x8", "8x2", "4x4"}) {
    EXPECT_EQ(std::count(all.begin(), all.end(), mesh), 1) << mesh;
  }
  EXPECT_EQ(Meshes({}, 1), Names{"1"});
}

std::string WhyNot(const PlacementRequest& request) {
  try {
    FindPlacement(request);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNoPlacement);
    return error.message();
  }
}

class Refusal : public ::testing::Test {
 protected:
  PlacementRequest Request(int64_t bytes) {
    return {.config = config_,
            .step = *step_,
            .meshes = {placement::DeviceMesh({4})},
            .memory_bytes = bytes};
  }
  const Config config_;
  const std::unique_ptr<Graph> step_ = Parse(testing::SmallStep(4, 4096, 1024));
};

// Whatever time the search has left.
TEST_F(Refusal, NamesTheMemoryThatIsEnough) {
  for (const double seconds : {60.0, 0.0, -5.0}) {
    PlacementRequest request = Request(1000);
    request.time_limit_s = seconds;
    const std::string why = WhyNot(request);
    EXPECT_NE(why.find("no placement fits into 9.314e-07 GiB"), std::string::npos) << why;
    const size_t with = why.find("; with ");
    ASSERT_NE(with, std::string::npos) << why;
    const double enough = std::stod(why.substr(with + 7));
    EXPECT_EQ(WhyNot(Request(static_cast<int64_t>(enough * 1024 * 1024 * 1024))), "");
  }
}

// Only those without which there would be a placement.
TEST_F(Refusal, NamesDemandsThatDoNotFitTogether) {
  PlacementRequest request = Request(int64_t{60} << 20);
  EXPECT_EQ(WhyNot(request), "");
  request.pins = [](const placement::DeviceMesh&) {
    return std::vector<placement::Pin>{{"x", "S(0)"}, {"layers.*.weight", "R"}};
  };
  const std::string why = WhyNot(request);
  EXPECT_NE(why.find("on each rank together with --pin layers.*.weight=R; with "),
            std::string::npos)
      << why;
}

// For judging, plans that need little more than the least are offered instead.
TEST_F(Refusal, LeavesTheLastWordToTheJudge) {
  PlacementRequest request = Request(1000);
  request.for_judging = true;
  const FoundPlacement found = FindPlacement(request);
  EXPECT_FALSE(found.fits);
  ASSERT_FALSE(found.candidates.empty());
  const std::string why = WhyNot(Request(1000));
  const double least = std::stod(why.substr(why.find("; with ") + 7)) * 1024 * 1024 * 1024;
  EXPECT_LE(static_cast<double>(found.best->placement.peak_bytes), 1.04 * least);
}

// A search that ends for want of time must have seen the best mesh, wherever it was in the list.
TEST(PlacementOrder, TheMostPromisingMeshComesFirst) {
  const Config config;
  const std::unique_ptr<Graph> step = Parse(testing::SmallStep(4, 4096, 1024));
  std::vector<placement::DeviceMesh> meshes;
  for (const char* mesh : {"64x2", "2x64", "128", "16x8"}) {
    meshes.push_back(placement::DeviceMesh::Parse(mesh));
  }
  for (size_t turn = 0; turn < meshes.size(); ++turn) {
    const FoundPlacement found = FindPlacement({.config = config, .step = *step, .meshes = meshes});
    ASSERT_EQ(found.meshes.size(), meshes.size());
    EXPECT_EQ(found.meshes.front().ToString(), found.best->pricing->mesh().ToString());
    std::ranges::rotate(meshes, meshes.begin() + 1);
  }
}

}  // namespace
}  // namespace gt::find_placement_test
