// Finds the labelling of a step that takes the least time within the memory, and proves how far from the
// best it can be.
//
// Prices on kernels, moves and moments of memory turn the step into a sum over labels, whose minimum is a
// bound (step_problem.h). The best prices are found with cutting planes: every labelling that is met
// bounds what any prices can reach, and a small linear program names the most promising ones. It also
// says which mixture of labellings no prices can tell from a better single one. The search then splits
// the labels of the variable in which that mixture is most at odds, and bounds both halves by
// themselves, until nothing is left that could be better. The problem of the labels that were met so
// far is much smaller, and tells at which prices to ask and where to split.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gt/placement/search/step_problem.h"

namespace gt::placement {

struct StepOptions {
  // Microseconds for each byte above the limit; infinity: nothing may be above it.
  double over_price = kForbidden;
  double relative_gap = 4e-5;  // good enough
  double time_limit_s = std::numeric_limits<double>::infinity();
  // Entries of tables that the search may go over before it ends with what it has, on every machine the
  // same.
  double work_limit = 1e10;
  int question_limit = std::numeric_limits<int>::max();  // likewise, of weighted sums
  int threads = 1;                                       // results do not depend on it
  // Labellings that take this long or longer are of no interest.
  double cutoff = kForbidden;
  // Labellings to improve on, asked for once the problem is reduced, so that they can be found meanwhile;
  // null: none. Labels that they have are looked at first.
  std::function<std::vector<std::vector<int32_t>>()> starts = nullptr;
  // Called now and then with the best time so far and the bound.
  std::function<void(double best, double bound)> progress = nullptr;
};

struct StepSolution {
  bool feasible = false;  // a labelling was found
  std::vector<int32_t> labels;
  StepTime time;
  double cost = kForbidden;  // of the step, and of memory above the limit
  // No labelling that fits takes less; infinite if there is none. At most the cutoff.
  double lower_bound = 0;
  double work = 0;                        // entries of tables that the search went over
  std::vector<std::vector<int32_t>> met;  // labellings on the way, whether or not they fit
};

// Deterministic without a time limit. The problem is given up once it has been reduced: its matrices
// can be most of the memory in use.
StepSolution SearchStep(StepProblem problem, const StepOptions& options = {});

// The smallest limit on memory under which there is a labelling, between bounds.
struct LeastMemory {
  int64_t enough = 0;           // a labelling is known
  int64_t too_little = 0;       // below this there is none
  std::vector<int32_t> labels;  // with which `enough` is; empty: none was found
};
LeastMemory FindLeastMemory(const StepProblem& problem, const StepOptions& options = {});

}  // namespace gt::placement
