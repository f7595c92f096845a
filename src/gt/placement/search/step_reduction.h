// Makes a problem of a step smaller before it is searched: drops labels that another one of the same
// variable is never worse than, whatever the prices are and whatever the others take, and puts
// variables in an order in which neighbours are near each other.
//
// If a label saves v of what is visible and k and m of a phase's kernels and moves, the step becomes
// shorter by at least v + min(k, m), since a maximum follows its arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/placement/search/step_problem.h"

namespace gt::placement {

struct ReducedStep {
  StepProblem problem;
  std::vector<int32_t> variable;             // of the whole problem, by variable
  std::vector<std::vector<int32_t>> labels;  // of the whole problem, by variable and label
  // By variable and label of the whole problem: the label here that is never worse; -1: none is known.
  std::vector<std::vector<int32_t>> instead;
  bool feasible = true;  // false: some variable has no possible label

  // A labelling of the whole problem.
  std::vector<int32_t> Restore(const std::vector<int32_t>& reduced) const;
  // The other way round; false if some of its labels are not there any more.
  bool Translate(const std::vector<int32_t>& whole, std::vector<int32_t>& reduced) const;
  // A labelling here that takes no more; empty: none is known.
  std::vector<int32_t> NoWorse(const std::vector<int32_t>& whole) const;
};

// With `memory` a label must not use more, either, than one that is dropped for it. `allowed` are the
// labels to begin with, by variable; empty: all.
ReducedStep Reduce(const StepProblem& problem, bool memory,
                   const std::vector<std::vector<bool>>& allowed = {});

}  // namespace gt::placement
