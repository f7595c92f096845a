#include <algorithm>

#include "gt/base/error.h"
#include "gt/placement/solver/branch_and_bound.h"
#include "gt/placement/solver/problem_check.h"

namespace gt::placement {
namespace {

void CheckStart(const LabelProblem& problem, const std::vector<int32_t>& start) {
  if (start.empty()) return;
  bool sound = start.size() == problem.variables.size();
  for (size_t v = 0; sound && v < start.size(); ++v) {
    sound = start[v] >= 0 && static_cast<size_t>(start[v]) < problem.variables[v].costs.size();
  }
  if (!sound) Fail(ErrorCode::kBadPlacementProblem, "the labels to start from do not exist");
}

}  // namespace

LabelSolution Solve(const LabelProblem& problem, const SolverOptions& options) {
  const Deadline deadline(options.time_limit_s);
  CheckProblem(problem);
  CheckStart(problem, options.start);
  BranchAndBound search(problem, options, deadline);
  if (!options.start.empty()) search.Offer(options.start);
  const double bound = search.Explore(LabelGraph::From(problem), 0);
  LabelSolution solution = search.best();
  solution.lower_bound = std::min({std::max(bound, 0.0), solution.cost, options.cutoff});
  solution.work = search.work();
  return solution;
}

}  // namespace gt::placement
