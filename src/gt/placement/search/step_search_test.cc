#include "gt/placement/search/step_search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "gt/placement/search/step_bound.h"
#include "gt/placement/search/step_reduction.h"
#include "gt/testing/label_problems.h"
#include "gt/testing/shell.h"
#include "gt/testing/temp_folder.h"

namespace gt::step_search_test {
namespace {

using namespace placement;
namespace testing = gt::testing;
using gt::testing::EnumeratedStep;
using gt::testing::RandomStepProblem;

// The time of a labelling, with what memory above the limit costs.
void ExpectCostIsReal(const StepProblem& problem, const StepSolution& solution, double over_price) {
  StepProblem fixed = problem;
  for (size_t v = 0; v < fixed.variables.size(); ++v) {
    for (size_t label = 0; label < fixed.variables[v].times.size(); ++label) {
      if (static_cast<int32_t>(label) != solution.labels[v]) {
        fixed.variables[v].times[label].visible = kForbidden;
      }
    }
  }
  EXPECT_NEAR(solution.cost, EnumeratedStep(fixed, over_price), 1e-9);
}

void ExpectOptimal(const StepProblem& problem, const StepOptions& options, uint64_t seed) {
  SCOPED_TRACE(seed);
  const double optimum = EnumeratedStep(problem, options.over_price);
  const StepSolution solution = SearchStep(problem, options);
  ASSERT_EQ(solution.feasible, optimum < kForbidden);
  if (!solution.feasible) {
    EXPECT_EQ(solution.lower_bound, kForbidden);
    return;
  }
  ExpectCostIsReal(problem, solution, options.over_price);
  EXPECT_LE(solution.lower_bound, optimum + 1e-9);
  EXPECT_LE(solution.cost, optimum * (1 + 1e-4) + 1e-9);
  EXPECT_GE(solution.lower_bound, optimum * (1 - 1e-4) - 1e-3);
}

TEST(StepSearch, FindsTheOptimumWhereMovesHide) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    ExpectOptimal(RandomStepProblem(seed, /*with_memory=*/false), {}, seed);
  }
}

TEST(StepSearch, FindsTheOptimumWithinTheMemory) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    ExpectOptimal(RandomStepProblem(seed, /*with_memory=*/true), {}, seed);
  }
}

// Memory above the limit is paid for where that is cheaper than to do without it.
TEST(StepSearch, FindsTheOptimumWhereMemoryHasAPrice) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    StepOptions options;
    options.over_price = seed % 2 == 0 ? 0.5 : 3;
    ExpectOptimal(RandomStepProblem(seed, /*with_memory=*/seed % 8 != 7), options, seed);
  }
}

// An integer program that knows nothing of labels, solved by HiGHS. Skipped where python3 cannot import
// highspy (pip install highspy).
TEST(StepSearch, EqualsTheIlpOfHighs_slow) {
  if (testing::RunInShell("python3 -c 'import highspy' 2>&1").status != 0) {
    GTEST_SKIP() << "python3 has no highspy: pip install highspy";
  }
  constexpr uint64_t kProblems = 500;
  const testing::TempFolder folder;
  for (uint64_t seed = 0; seed < kProblems; ++seed) {
    testing::WriteText(folder / fmt::format("{}.lp", seed),
                       testing::LinearProgramText(RandomStepProblem(1000 + seed, seed % 2 == 0)));
  }
  const testing::ShellOutcome highs = testing::RunInShell(
      fmt::format("python3 " GT_SOURCE_DIR "/tests/placement/solve_with_highs.py {} 2>&1",
                  folder.path().string()));
  ASSERT_EQ(highs.status, 0) << highs.output;
  std::istringstream lines(highs.output);
  std::string name, optimum;
  uint64_t seen = 0;
  for (; lines >> name >> optimum; ++seen) {
    SCOPED_TRACE(name);
    const uint64_t seed = std::stoull(name);
    const StepSolution solution = SearchStep(RandomStepProblem(1000 + seed, seed % 2 == 0));
    ASSERT_EQ(solution.feasible, optimum != "infeasible");
    if (!solution.feasible) continue;
    EXPECT_NEAR(solution.cost, std::stod(optimum), 1e-4 * std::stod(optimum) + 1e-5);
    EXPECT_LE(solution.lower_bound, std::stod(optimum) + 1e-5);
  }
  EXPECT_EQ(seen, kProblems);
}

// Wherever it begins: with the best labelling, with the worst, or with one that does not fit.
TEST(StepSearch, FindsTheOptimumFromAnyStart) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const StepProblem problem = RandomStepProblem(seed, seed % 2 == 0);
    std::vector<std::vector<int32_t>> starts;
    for (const size_t shift : {seed, seed + 1}) {
      std::vector<int32_t>& start = starts.emplace_back();
      for (size_t v = 0; v < problem.variables.size(); ++v) {
        start.push_back(static_cast<int32_t>((v + shift) % problem.variables[v].times.size()));
      }
    }
    if (seed % 3 == 0) starts = SearchStep(problem).met;
    StepOptions options;
    options.starts = [&] { return starts; };
    ExpectOptimal(problem, options, seed);
  }
}

// However early the search ends, its bound is below every labelling.
TEST(StepSearch, TheBoundHoldsWhereverTheSearchEnds) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const StepProblem problem = RandomStepProblem(seed, seed % 2 == 0);
    const double optimum = EnumeratedStep(problem, kForbidden);
    StepOptions options;
    options.work_limit = static_cast<double>(1 + seed);
    const StepSolution solution = SearchStep(problem, options);
    EXPECT_LE(solution.lower_bound, optimum + 1e-9);
    EXPECT_GE(solution.cost, optimum - 1e-9);
  }
}

// Without the time for a single question there may be nothing to show, and nothing more to ask.
TEST(StepSearch, EndsWhereNoTimeIsLeft) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    const StepProblem problem = RandomStepProblem(seed, seed % 2 == 0);
    StepOptions options;
    options.time_limit_s = 0;
    if (seed % 4 >= 2) options.over_price = 1;
    const StepSolution solution = SearchStep(problem, options);
    EXPECT_LE(solution.lower_bound, EnumeratedStep(problem, options.over_price) + 1e-9);
  }
}

// What is above the cutoff need not be found; what is below it must be.
TEST(StepSearch, LooksBelowTheCutoffOnly) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const StepProblem problem = RandomStepProblem(seed, seed % 2 == 0);
    const double optimum = EnumeratedStep(problem, kForbidden);
    if (optimum == kForbidden || optimum == 0) continue;
    StepOptions options;
    options.cutoff = optimum * 0.9;
    EXPECT_GE(SearchStep(problem, options).lower_bound, options.cutoff * (1 - 1e-9));
    options.cutoff = optimum * 1.1;
    EXPECT_NEAR(SearchStep(problem, options).cost, optimum, 1e-4 * optimum);
  }
}

TEST(StepSearch, ResultsDoNotDependOnThreads) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const StepProblem problem = RandomStepProblem(seed, seed % 2 == 0);
    StepOptions many;
    many.threads = 4;
    const StepSolution one = SearchStep(problem);
    const StepSolution other = SearchStep(problem, many);
    EXPECT_EQ(one.labels, other.labels) << seed;
    EXPECT_EQ(one.lower_bound, other.lower_bound) << seed;
  }
}

// Dropping labels and putting variables in another order changes no optimum.
TEST(StepReduction, KeepsTheOptimum) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const bool memory = seed % 2 == 0;
    const StepProblem problem = RandomStepProblem(seed, memory);
    const ReducedStep reduced = Reduce(problem, memory);
    const double optimum = EnumeratedStep(problem, kForbidden);
    const double left = reduced.feasible ? EnumeratedStep(reduced.problem, kForbidden) : kForbidden;
    EXPECT_EQ(left == kForbidden, optimum == kForbidden) << seed;
    if (optimum == kForbidden) continue;
    EXPECT_NEAR(left, optimum, 1e-9) << seed;
  }
}

TEST(StepReduction, RestoresALabellingOfTheWhole) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const StepProblem problem = RandomStepProblem(seed, /*with_memory=*/false);
    const ReducedStep reduced = Reduce(problem, false);
    if (!reduced.feasible) continue;
    const std::vector<int32_t> first(reduced.problem.variables.size(), 0);
    const std::vector<int32_t> whole = reduced.Restore(first);
    EXPECT_EQ(reduced.problem.TimeOf(first).Total(), problem.TimeOf(whole).Total());
    std::vector<int32_t> again;
    EXPECT_TRUE(reduced.Translate(whole, again));
    EXPECT_EQ(again, first);
  }
}

// A labelling with a label that was dropped has no counterpart.
TEST(StepReduction, TranslatesOnlyWhatIsLeft) {
  const StepProblem problem = RandomStepProblem(3, /*with_memory=*/false);
  std::vector<std::vector<bool>> allowed;
  for (const StepVariable& variable : problem.variables) {
    allowed.emplace_back(variable.times.size(), true);
  }
  const size_t count = allowed[0].size();
  ASSERT_GT(count, 1u);
  allowed[0].assign(count, false);
  allowed[0][0] = true;
  std::vector<int32_t> whole(problem.variables.size(), 0), reduced;
  whole[0] = static_cast<int32_t>(count) - 1;
  EXPECT_FALSE(Reduce(problem, false, allowed).Translate(whole, reduced));
}

// The same cut separates labels alike wherever the variable is.
TEST(LabelCut, SeparatesByTimeBytesOrName) {
  StepVariable variable;
  variable.times = {{.visible = 1, .kernels = {2, 3}}, {.visible = 7}, {.moves = {9, 9}}};
  variable.usage = {30, 10, 20};
  using By = LabelCut::By;
  const auto low = [&](const LabelCut& cut) {
    std::vector<int> labels;
    for (size_t label = 0; label < variable.times.size(); ++label) {
      if (cut.IsLow(variable, label)) labels.push_back(static_cast<int>(label));
    }
    return labels;
  };
  EXPECT_EQ(low({.by = By::kTime, .limit = 6}), (std::vector<int>{0, 2}));
  EXPECT_EQ(low({.by = By::kMemory, .limit = 20}), (std::vector<int>{1, 2}));
  EXPECT_EQ(low({.by = By::kName, .label = 1}), (std::vector<int>{1}));
}

TEST(LeastMemory, IsTheSmallestPeak) {
  int seen = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    StepProblem problem = RandomStepProblem(seed, /*with_memory=*/true);
    problem.usage_limit = std::numeric_limits<int64_t>::max();
    if (EnumeratedStep(problem, kForbidden) == kForbidden) continue;
    const LeastMemory least = FindLeastMemory(problem);
    problem.usage_limit = least.enough;
    EXPECT_LT(EnumeratedStep(problem, kForbidden), kForbidden);
    problem.usage_limit = least.too_little - 1;
    EXPECT_EQ(EnumeratedStep(problem, kForbidden), kForbidden);
    EXPECT_LE(least.enough - least.too_little, 1);
    ++seen;
  }
  EXPECT_GT(seen, 100);
}

}  // namespace
}  // namespace gt::step_search_test
