// Layouts that people write by hand: which there are for a job, and that the search finds none worse.
#include "gt/placement/hand_layouts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gt/placement/plan.h"
#include "gt/testing/small_placement.h"

namespace gt::hand_layouts_test {
namespace {

using namespace placement;
using testing::SmallPlacement;
using testing::SmallStep;

std::vector<std::string> NamesOf(int64_t ranks, int64_t batch, bool experts = false,
                                 std::vector<DeviceMesh> meshes = {}) {
  std::vector<std::string> names;
  for (const HandLayout& layout : HandLayouts({ranks, batch, 8, experts, std::move(meshes)})) {
    EXPECT_EQ(layout.mesh.ranks(), ranks) << layout.name;
    EXPECT_EQ(static_cast<size_t>(layout.mesh.axes()), layout.axes.size()) << layout.name;
    names.push_back(layout.name);
  }
  return names;
}

TEST(HandLayouts, AreThoseThatTheRanksAndTheBatchAllow) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(NamesOf(1, 8), Names());
  EXPECT_EQ(NamesOf(8, 8), (Names{"DDP 8", "FSDP 8", "FSDP 4 x TP 2", "FSDP 2 x TP 4", "TP 8"}));
  EXPECT_EQ(NamesOf(16, 16), (Names{"DDP 16", "FSDP 16", "HSDP 2 x 8", "FSDP 8 x TP 2",
                                    "FSDP 4 x TP 4", "FSDP 2 x TP 8"}));
  EXPECT_EQ(NamesOf(4, 4, /*experts=*/true),
            (Names{"DDP 4", "FSDP 4", "FSDP 2 x EP 2", "EP 4", "FSDP 2 x TP 2", "TP 4"}));
  EXPECT_EQ(NamesOf(8, 2), (Names{"FSDP 2 x TP 4", "TP 8"}));
  EXPECT_EQ(NamesOf(6, 1), Names());
  EXPECT_EQ(NamesOf(12, 12), (Names{"DDP 12", "FSDP 12", "FSDP 6 x TP 2", "FSDP 3 x TP 4"}));
  // Meshes that are named add what nobody would try on all.
  EXPECT_EQ(NamesOf(12, 12, false, {DeviceMesh({4, 3}), DeviceMesh({3, 4})}),
            (Names{"DDP 12", "FSDP 12", "FSDP 6 x TP 2", "FSDP 3 x TP 4", "FSDP 4 x TP 3"}));
  EXPECT_EQ(NamesOf(64, 64, true, {DeviceMesh({4, 16})}).back(), "FSDP 4 x EP 16");
}

Plan PlanUnder(const std::string& step, const HandLayout& layout) {
  const SmallPlacement placed(step, layout.mesh.ToString(), {.axes = layout.axes});
  EXPECT_TRUE(placed.placement().feasible) << layout.name;
  return MakePlan(placed.problem(), placed.placement(), "");
}

TEST(HandLayouts, RestrictWhatAxesCut) {
  const std::string step = SmallStep(3, 4096, 1024);
  for (const HandLayout& layout : HandLayouts({4, 4096, 8})) {
    const Plan plan = PlanUnder(step, layout);
    if (layout.name == "DDP 4") {
      EXPECT_EQ(plan.inputs.at("layers.0.weight"), "R");
      EXPECT_NE(plan.inputs.at("x"), "S(1)");
    } else if (layout.name == "TP 4") {
      EXPECT_NE(plan.inputs.at("x"), "S(0)");
    }
  }
}

// However many rows there are to compute and however wide the matrices are.
TEST(HandLayouts, AreNeverBetterThanTheSearchOnTheirMesh) {
  for (int64_t batch : {64, 16384}) {
    for (int64_t width : {256, 4096}) {
      const std::string step = SmallStep(3, batch, width);
      for (const HandLayout& layout : HandLayouts({8, batch, 4})) {
        const SmallPlacement free(step, layout.mesh.ToString());
        const SmallPlacement by_hand(step, layout.mesh.ToString(), {.axes = layout.axes});
        ASSERT_TRUE(free.placement().feasible && by_hand.placement().feasible);
        EXPECT_LE(free.placement().step_us, by_hand.placement().step_us * (1 + 1e-3))
            << layout.name << ", " << batch << " x " << width;
        EXPECT_LE(free.placement().bound_us, by_hand.placement().step_us * (1 + 1e-9))
            << layout.name << ", " << batch << " x " << width;
      }
    }
  }
}

}  // namespace
}  // namespace gt::hand_layouts_test
