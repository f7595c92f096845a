// The times of a plan add up to what its step takes, whoever is asked.
#include "gt/placement/plan_times.h"

#include <gtest/gtest.h>

#include <string>

#include "gt/base/error.h"
#include "gt/placement/plan.h"
#include "gt/testing/small_placement.h"

namespace gt::plan_times_test {
namespace {

using namespace placement;
using testing::SmallPlacement;
using testing::SmallStep;

TEST(PlanTimes, AddUpToTheStep) {
  for (const char* mesh : {"4", "2x2", "4x2"}) {
    for (bool fold : {false, true}) {
      const SmallPlacement placed(SmallStep(6, 4096, 1024), mesh, {.fold = fold});
      ASSERT_TRUE(placed.placement().feasible);
      const PlanTimes times = TimesOf(placed.problem(), placed.placement().labels);
      const PlanCost cost = CostOf(placed.problem(), placed.placement().labels);
      EXPECT_NEAR(times.TotalUs(), cost.step_us(/*overlap=*/false), 1e-6 * times.TotalUs())
          << mesh << (fold ? " folded" : "");
    }
  }
}

// A column-parallel and a row-parallel product by hand: the second one's partial sum is made whole
// where it is returned, and nothing else moves.
TEST(PlanTimes, NameWhatTakesThem) {
  constexpr const char* kStep = R"(graph @two(
    %w0: param "w0" f32[1024, 4096], %w1: param "w1" f32[4096, 1024],
    %x: input "x" f32[512, 1024]) {
  %h = aten::mm(%x, %w0) : f32[512, 4096]
  %y = aten::mm(%h, %w1) : f32[512, 1024]
  return result "y" %y
})";
  const SmallPlacement placed(
      kStep, "8", {.pins = {{"w0", "S(1)"}, {"w1", "S(0)"}, {"x", "R"}, {"h", "S(1)"}}});
  ASSERT_TRUE(placed.placement().feasible);
  const PlanTimes times = TimesOf(placed.problem(), placed.placement().labels);
  EXPECT_GT(times.nodes.at("h").kernel_us, 0);
  EXPECT_EQ(times.nodes.at("h").moves_us, (std::vector<double>{0, 0}));
  EXPECT_EQ(times.nodes.at("y").moves_us, (std::vector<double>{0, 0}));
  EXPECT_GT(times.results.at("y"), 0);
}

// Reading sizes from a tensor makes no value that could be named, but its operand is made whole for it.
TEST(PlanTimes, CountNodesWithoutResults) {
  constexpr const char* kStep = R"(graph @reads(%counts: input "counts" i64[4096]) {
  symbols { u0: data, hint 3, range [0, inf]; u1: data, hint 3, range [0, inf] }
  %s = aten::sum.dim_IntList(%counts, dim = [0], keepdim = true) : i64[1]
  gt::read_ints(%s) binds [u0]
  %m = aten::neg(%s) : i64[1]
  gt::read_ints(%m) binds [u1]
  %z = aten::zeros(size = [u0, u1]) : f32[u0, u1]
  return result "z" %z
})";
  SmallPlacement placed(kStep, "4", {.pins = {{"counts", "S(0)"}}});
  ASSERT_TRUE(placed.placement().feasible);
  const Plan plan = MakePlan(placed.problem(), placed.placement(), "reads");
  EXPECT_EQ(plan.nodes.size(), 3u);
  EXPECT_TRUE(plan.times.nodes.contains("gt::read_ints #1"));
  EXPECT_TRUE(plan.times.nodes.contains("gt::read_ints #3"));
  EXPECT_EQ(plan.times.nodes.size(), 5u);
  const PlanCost cost = CostOf(placed.problem(), placed.placement().labels);
  EXPECT_GT(plan.times.TotalUs(), 0);
  EXPECT_NEAR(plan.times.TotalUs(), cost.step_us(/*overlap=*/false), 1e-6 * plan.times.TotalUs());
  EXPECT_EQ(ToJson(PlanFromJson(ToJson(plan), "plan.json")), ToJson(plan));
  // No pin means such a node, not even one for everything.
  for (const char* pattern : {"*", "gt::read_ints"}) {
    try {
      const SmallPlacement pinned(kStep, "4", {.pins = {{pattern, "S(0)"}}});
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadPin) << pattern;
    }
  }
}

TEST(PlanTimes, AreReadAsTheyWereWritten) {
  const SmallPlacement placed(SmallStep(3, 4096, 1024), "2x2");
  const Plan plan = MakePlan(placed.problem(), placed.placement(), "small");
  const Plan again = PlanFromJson(ToJson(plan), "plan.json");
  EXPECT_NEAR(again.times.TotalUs(), plan.times.TotalUs(), 1e-3);
  ASSERT_EQ(again.times.nodes.size(), plan.times.nodes.size());
  EXPECT_EQ(again.times.nodes.at("x1").moves_us.size(), 2u);
  EXPECT_EQ(ToJson(again), ToJson(plan));
}

}  // namespace
}  // namespace gt::plan_times_test
