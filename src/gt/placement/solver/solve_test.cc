#include <gtest/gtest.h>

#include <cmath>

#include "gt/base/error.h"
#include "gt/placement/solver/label_problem.h"
#include "gt/testing/label_problems.h"

namespace gt::solve_test {
namespace {

using placement::kForbidden;
using placement::LabelProblem;
using placement::LabelSolution;
using placement::SolverOptions;
using testing::EnumeratedOptimum;
using testing::GridLabelProblem;
using testing::LayeredLabelProblem;
using testing::RandomLabelProblem;

void ExpectOptimal(const LabelProblem& problem, uint64_t seed) {
  SCOPED_TRACE(seed);
  const double optimum = EnumeratedOptimum(problem);
  const LabelSolution solution = placement::Solve(problem);
  ASSERT_EQ(solution.feasible, optimum < kForbidden);
  if (!solution.feasible) return;
  EXPECT_NEAR(solution.cost, optimum, 1e-9);
  EXPECT_EQ(solution.cost, CostOf(problem, solution.labels));
  EXPECT_LE(PeakUsage(problem, solution.labels), problem.usage_limit);
  EXPECT_LE(solution.lower_bound, optimum + 1e-9);
  EXPECT_LT(solution.gap(), 1e-6);
}

TEST(Solve, FindsTheOptimumOfSmallProblems) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    ExpectOptimal(RandomLabelProblem(seed, /*with_memory=*/false), seed);
  }
}

TEST(Solve, FindsTheOptimumWithinTheMemory) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    ExpectOptimal(RandomLabelProblem(seed, /*with_memory=*/true), seed);
  }
}

TEST(Solve, ClosesTheGapOfLayeredModels) {
  for (const int layers : {1, 7, 32}) {
    for (const int axes : {1, 2}) {
      const LabelSolution solution = placement::Solve(LayeredLabelProblem(layers, axes));
      ASSERT_TRUE(solution.feasible);
      EXPECT_LT(solution.gap(), 1e-9) << layers << " layers, " << axes << " axes";
    }
  }
}

TEST(Solve, ClosesTheGapOfGrids) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    EXPECT_LT(placement::Solve(GridLabelProblem(seed, 12, 3, /*with_memory=*/false)).gap(), 1e-8);
    EXPECT_LT(placement::Solve(GridLabelProblem(seed, 4, 3, /*with_memory=*/true)).gap(), 1e-8);
  }
}

// Too large to be searched as a whole in this time: parts are.
TEST(Solve, EndsInTimeWithABound) {
  const LabelProblem problem = GridLabelProblem(1, 20, 3, /*with_memory=*/true);
  SolverOptions options;
  options.time_limit_s = 1.5;
  const LabelSolution solution = placement::Solve(problem, options);
  ASSERT_TRUE(solution.feasible);
  EXPECT_LE(PeakUsage(problem, solution.labels), problem.usage_limit);
  EXPECT_EQ(solution.cost, CostOf(problem, solution.labels));
  EXPECT_LE(solution.lower_bound, solution.cost);
  EXPECT_LT(solution.gap(), 0.2);
}

TEST(Solve, IsDeterministicWhateverTheThreads) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const LabelProblem problem = seed < 5 ? GridLabelProblem(seed, 4, 3, seed % 2 == 0)
                                          : RandomLabelProblem(seed, seed % 2 == 0);
    SolverOptions many;
    many.threads = 4;
    const LabelSolution one = placement::Solve(problem);
    const LabelSolution other = placement::Solve(problem, many);
    EXPECT_EQ(one.labels, other.labels);
    EXPECT_EQ(one.lower_bound, other.lower_bound);
  }
}

TEST(Solve, NeverReturnsAWorseLabellingThanItStartedWith) {
  const LabelProblem problem = LayeredLabelProblem(4, 2);
  SolverOptions options;
  options.start = placement::Solve(problem).labels;
  options.time_limit_s = 0;
  const LabelSolution solution = placement::Solve(problem, options);
  ASSERT_TRUE(solution.feasible);
  EXPECT_EQ(solution.labels, options.start);
  EXPECT_LE(solution.lower_bound, solution.cost);
}

// No labelling with a label costs less than what is said of it, also if the label was dropped or its
// variable eliminated on the way.
TEST(Solve, BoundsOfLabelsHold) {
  size_t seen = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const LabelProblem problem = RandomLabelProblem(seed, /*with_memory=*/false);
    const double optimum = EnumeratedOptimum(problem);
    if (optimum == kForbidden || optimum == 0) continue;
    for (const double above : {0.99, 1.01, 1.04, 1.5}) {
      std::vector<std::vector<double>> bounds;
      SolverOptions options;
      options.cutoff = above * optimum;
      options.label_bounds = &bounds;
      placement::Solve(problem, options);
      for (size_t variable = 0; variable < bounds.size(); ++variable) {
        for (size_t label = 0; label < bounds[variable].size(); ++label) {
          if (bounds[variable][label] <= std::min(optimum, options.cutoff)) continue;
          LabelProblem with = problem;
          std::vector<double>& costs = with.variables[variable].costs;
          for (size_t other = 0; other < costs.size(); ++other) {
            if (other != label) costs[other] = kForbidden;
          }
          EXPECT_GE(EnumeratedOptimum(with), bounds[variable][label] * (1 - 1e-9))
              << "variable " << variable << " label " << label;
          ++seen;
        }
      }
    }
  }
  EXPECT_GT(seen, 1000u);
}

TEST(Solve, EndsWithALabellingThatIsEnough) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const LabelProblem problem = RandomLabelProblem(seed, /*with_memory=*/false);
    const double optimum = EnumeratedOptimum(problem);
    SolverOptions options;
    options.enough = 2 * optimum + 1;
    const LabelSolution solution = placement::Solve(problem, options);
    ASSERT_EQ(solution.feasible, optimum < kForbidden) << seed;
    if (!solution.feasible) continue;
    EXPECT_LT(solution.cost, options.enough) << seed;
    EXPECT_LE(solution.lower_bound, optimum + 1e-9) << seed;
  }
}

TEST(Solve, SaysThatNothingFits) {
  LabelProblem problem;
  problem.variables.push_back({{1, 2}, {10, 20}, {{0, 5, 2}}});
  problem.usage_limit = 19;
  EXPECT_FALSE(placement::Solve(problem).feasible);
  problem.usage_limit = 20;
  EXPECT_TRUE(placement::Solve(problem).feasible);
}

TEST(Solve, SolvesTheEmptyProblem) {
  const LabelSolution solution = placement::Solve({});
  EXPECT_TRUE(solution.feasible);
  EXPECT_EQ(solution.cost, 0);
}

TEST(Solve, RefusesWhatMakesNoSense) {
  const auto refuses = [](const auto& spoil) {
    LabelProblem problem = LayeredLabelProblem(1, 1);
    spoil(problem);
    try {
      placement::Solve(problem);
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kBadPlacementProblem;
    }
  };
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.variables[3].costs[0] = -1; }));
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.variables[3].costs[0] = std::nan(""); }));
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.variables[3].costs.clear(); }));
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.variables[3].usage = {1}; }));
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.variables[3].live = {{4, 2, 1}}; }));
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.variables[3].live = {{4, 6, 1}, {5, 7, 1}}; }));
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.edges[2].to = p.edges[2].from; }));
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.edges[2].matrix = 1000; }));
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.edges[2].factor = -1; }));
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.matrices[2].values.pop_back(); }));
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.matrices[2].values[0] = -1; }));
  EXPECT_TRUE(refuses([](LabelProblem& p) { p.variables[0].costs.push_back(0); }));
}

TEST(PeakUsage, CountsWhatIsAliveAtTheSameTime) {
  LabelProblem problem;
  problem.variables.push_back({{0, 0}, {3, 5}, {{0, 2, 1}, {4, 6, 3}}});
  problem.variables.push_back({{0}, {7}, {{2, 4, 1}}});
  problem.variables.push_back({{0}, {1}, {{5, 5, 9}}});
  EXPECT_EQ(PeakUsage(problem, {0, 0, 0}), 9);
  EXPECT_EQ(PeakUsage(problem, {1, 0, 0}), 15);
}

}  // namespace
}  // namespace gt::solve_test
