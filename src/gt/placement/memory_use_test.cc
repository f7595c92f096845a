#include "gt/placement/memory_use.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "gt/testing/small_placement.h"

namespace gt::memory_use_test {
namespace {

using namespace placement;
using testing::SmallPlacement;
using testing::SmallStep;

// Gradients leave for their parameters' places when they are made: sums that are not added up yet do not
// pile up until the end of the step.
TEST(MemoryUse, GradientsAreHeldWhileTheyAreMade) {
  const SmallPlacement placed(SmallStep(6, 64, 256), "8");
  LabelProblem labels;
  labels.variables.resize(placed.problem().variables().size());
  AddMemory(placed.problem(), {.limit = int64_t{1} << 40}, labels);
  int64_t seen = 0;
  const std::vector<FoldedClass>& classes = placed.problem().folding().classes;
  for (size_t i = 0; i < classes.size(); ++i) {
    if (classes[i].node == nullptr || !classes[i].name().starts_with("g")) continue;
    seen += classes[i].count();
    for (const LiveRange& range : labels.variables[i].live) EXPECT_EQ(range.count, 1);
  }
  EXPECT_EQ(seen, 6);
}

}  // namespace
}  // namespace gt::memory_use_test
