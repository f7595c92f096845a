#include "gt/placement/solver/label_reduction.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gt/placement/solver/core_graph.h"
#include "gt/placement/solver/message_passing.h"
#include "gt/placement/solver/min_plus.h"
#include "gt/testing/label_problems.h"

namespace gt::label_reduction_test {
namespace {

using placement::CoreGraph;
using placement::Deadline;
using placement::kForbidden;
using placement::LabelGraph;
using placement::LabelProblem;
using placement::LabelReduction;
using placement::MessagePassing;

constexpr auto kInfinite = static_cast<float>(kForbidden);

size_t Left(const LabelGraph& graph) {
  return static_cast<size_t>(std::ranges::count_if(
      graph.vertices, [](const placement::GraphVertex& vertex) { return vertex.present; }));
}

// Reduces, and checks that the optimum is still there if nothing but a constant is left.
size_t LeftAfterReduction(const LabelProblem& problem) {
  const Deadline deadline(kForbidden);
  LabelGraph graph = LabelGraph::From(problem);
  LabelReduction reduction(graph, deadline);
  reduction.Run();
  if (Left(graph) > 0 || !graph.feasible) return Left(graph);
  std::vector<int32_t> labels(problem.variables.size(), 0);
  reduction.Restore(labels);
  EXPECT_EQ(CostOf(problem, labels), graph.constant);
  return 0;
}

TEST(LabelReduction, SolvesSeriesParallelGraphs) {
  LabelProblem ring = testing::GridLabelProblem(3, 2, 5, /*with_memory=*/false);
  EXPECT_EQ(LeftAfterReduction(ring), 0U);
  EXPECT_EQ(LeftAfterReduction(testing::LayeredLabelProblem(3, 1)), 0U);
}

TEST(LabelReduction, KeepsTheOptimumOfRandomProblems) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    LeftAfterReduction(testing::RandomLabelProblem(seed, seed % 2 == 0));
  }
}

TEST(LabelReduction, MergesVariablesThatDetermineEachOther) {
  // A grid with memory does not reduce; tied rows leave one variable of each pair.
  LabelProblem problem = testing::GridLabelProblem(5, 4, 3, /*with_memory=*/true);
  const size_t before = LeftAfterReduction(problem);
  problem.matrices.push_back({3,
                              3,
                              {0, kInfinite, kInfinite,  //
                               kInfinite, kInfinite, 1,  //
                               kInfinite, 2, kInfinite}});
  const auto tie = static_cast<int32_t>(problem.matrices.size()) - 1;
  for (int32_t v = 0; v < 16; v += 2) problem.edges.push_back({v, v + 1, tie, 1});
  EXPECT_LE(2 * LeftAfterReduction(problem), before);
}

TEST(LabelReduction, FindsContradictions) {
  LabelProblem problem;
  problem.variables = {{{0, 0}, {}, {}}, {{0, 0}, {}, {}}};
  problem.matrices = {{2, 2, {0, kInfinite, kInfinite, 0}}, {2, 2, {kInfinite, 0, 0, kInfinite}}};
  problem.edges = {{0, 1, 0, 1}, {0, 1, 1, 1}};
  const Deadline deadline(kForbidden);
  LabelGraph graph = LabelGraph::From(problem);
  LabelReduction(graph, deadline).Run();
  EXPECT_FALSE(graph.feasible);
}

TEST(MessagePassing, BoundsFromBelowAndNeverFalls) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const LabelProblem problem = testing::GridLabelProblem(seed, 3, 3, /*with_memory=*/false);
    const double optimum = testing::EnumeratedOptimum(problem);
    const LabelGraph graph = LabelGraph::From(problem);
    const bool narrow = seed % 2 == 1;
    const CoreGraph core(graph, narrow);
    MessagePassing messages(core, graph);
    double before = 0;
    for (int sweep = 0; sweep < 50; ++sweep) {
      messages.Sweep();
      EXPECT_GE(messages.bound(), before - 1e-9);
      before = messages.bound();
    }
    EXPECT_LE(before, optimum + 1e-9);
    EXPECT_GE(before, 0.9 * optimum);
    const double lost = narrow ? CoreGraph::kNarrowing * optimum : 0;
    EXPECT_GE(core.CostOf(messages.Decode()), optimum - lost);
  }
}

TEST(MessagePassing, GoesOnFromWhatWasSaved) {
  const LabelProblem problem = testing::GridLabelProblem(1, 6, 4, /*with_memory=*/false);
  LabelGraph graph = LabelGraph::From(problem);
  const CoreGraph core(graph, /*narrow=*/false);
  MessagePassing first(core, graph);
  for (int sweep = 0; sweep < 100; ++sweep) first.Sweep();
  first.Save(graph);
  MessagePassing second(core, graph);
  second.Sweep();
  EXPECT_GE(second.bound(), first.bound() - 1e-6);
}

// What labellings with a label cost above the bound is at least what is said.
TEST(MessagePassing, SaysWhatLabelsCostAtLeast) {
  LabelProblem problem = testing::GridLabelProblem(11, 3, 3, /*with_memory=*/false);
  const LabelGraph graph = LabelGraph::From(problem);
  for (const bool narrow : {false, true}) {
    const CoreGraph core(graph, narrow);
    MessagePassing messages(core, graph);
    for (int sweep = 0; sweep < 20; ++sweep) messages.Sweep();
    MessagePassing copy = messages;
    double entries = 0;
    for (int32_t v = 0; v < core.size(); ++v) {
      const std::vector<double> excess = messages.Excesses(v);
      const std::vector<double> closer = messages.ExcessesAround(v, copy, entries);
      EXPECT_EQ(copy.Excesses(v), excess);  // the copy is as before
      for (size_t x = 0; x < excess.size(); ++x) {
        LabelProblem with = problem;
        for (size_t other = 0; other < excess.size(); ++other) {
          if (other != x) with.variables[static_cast<size_t>(v)].costs[other] = kForbidden;
        }
        const double least = testing::EnumeratedOptimum(with) + 1e-9;
        EXPECT_LE(messages.bound() + excess[x], least);
        EXPECT_LE(messages.bound() + closer[x], least);
      }
    }
  }
}

// Over rows and over columns, of numbers of either size, whatever the number of labels.
TEST(MinPlus, OfRowsIsThatOfColumnsTurned) {
  for (size_t columns = 1; columns < 40; ++columns) {
    constexpr size_t kRows = 5;
    std::vector<double> table(kRows * columns), turned(kRows * columns), weight(columns);
    for (size_t y = 0; y < columns; ++y) {
      weight[y] = static_cast<double>((y * 7) % 11);
      for (size_t x = 0; x < kRows; ++x) {
        const bool forbidden = (x + y) % 6 == 5;
        const double cost = forbidden ? kForbidden : static_cast<double>((x * 13 + y * 5) % 17);
        table[x * columns + y] = turned[y * kRows + x] = cost;
      }
    }
    const std::vector<float> narrow(table.begin(), table.end());
    std::vector<double> expected(kRows), wide(kRows), of_narrow(kRows);
    placement::MinPlus(turned.data(), columns, kRows, weight.data(), expected.data());
    placement::MinPlusOfRows(table.data(), kRows, columns, weight.data(), wide.data());
    placement::MinPlusOfRows(narrow.data(), kRows, columns, weight.data(), of_narrow.data());
    EXPECT_EQ(wide, expected);
    EXPECT_EQ(of_narrow, expected);
  }
}

}  // namespace
}  // namespace gt::label_reduction_test
