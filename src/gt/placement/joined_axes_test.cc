#include "gt/placement/joined_axes.h"

#include <gtest/gtest.h>

#include "gt/ir/text.h"
#include "gt/placement/place.h"
#include "gt/sim/cluster.h"
#include "gt/testing/layered_step.h"

namespace gt::joined_axes_test {
namespace {

using namespace placement;
using gt::testing::LayeredStep;

TEST(JoinedAxes, AreOneAxisOfAllTheirRanks) {
  EXPECT_EQ(JoinAxes(DeviceMesh({4, 8, 2}), 1).ToString(), "4x16");
  EXPECT_EQ(JoinAxes(DeviceMesh({4, 8, 2}), 2).ToString(), "32x2");
  EXPECT_EQ(JoinAxes(DeviceMesh({2, 2, 2, 2}), 2).ToString(), "4x4");
}

// A plan on the coarser mesh is one on the finer mesh and takes the same, so that a search that begins
// there is never worse.
TEST(JoinedAxes, APlanTakesTheSameOnTheFinerMesh) {
  const std::unique_ptr<Graph> graph = Parse(LayeredStep{.layers = 3}.Text(), "test.gtir");
  const LinkModel links(ReadCluster(GT_SOURCE_DIR "/configs/clusters/h100.toml"));
  const Pricing fine(DeviceMesh({2, 2, 4}), links, SpeedOf("hopper"));
  const PlaceProblem finer(*graph, fine, {});
  for (const int split : {1, 2}) {
    const Pricing coarse(JoinAxes(fine.mesh(), split), links, SpeedOf("hopper"));
    const PlaceProblem joined(*graph, coarse, {});
    const Placement plan = Search(joined, {});
    ASSERT_TRUE(plan.feasible);
    SearchOptions options;
    const std::vector<int32_t> start = LabelsOnFinerMesh(joined, plan.labels, split, finer);
    ASSERT_EQ(start.size(), plan.labels.size());
    options.starts = [&] { return std::vector<std::vector<int32_t>>{start}; };
    EXPECT_NEAR(CostOf(finer, start).step_us(true), plan.step_us, 1e-6 * plan.step_us);
    options.question_limit = 1;
    const Placement begun = Search(finer, options);
    ASSERT_TRUE(begun.feasible);
    EXPECT_LE(begun.step_us, plan.step_us * (1 + 1e-9));
    EXPECT_LE(begun.bound_us, begun.step_us);
  }
}

}  // namespace
}  // namespace gt::joined_axes_test
