// The search: the cheapest placement of a step, with a bound that says how far from the best it can be.
//
// Moves of parameters and gradients can be under way while kernels run. A step then takes
//
//   kernels + visible moves + max(0, forward moves - forward kernels)
//                           + max(0, backward moves - backward kernels)
//
// which is no sum over labels. For factors f and b between 0 and 1 the sum
//
//   (1 - f) forward kernels + (1 - b) backward kernels + visible + f forward moves + b backward moves
//
// is one, and never more than the step takes: the largest of its minima over f and b bounds the step
// from below, and the plans found on the way are compared by what they really take.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gt/placement/memory_use.h"
#include "gt/placement/place_problem.h"

namespace gt::placement {

struct SearchOptions {
  bool overlap = true;  // false: every move is waited for
  MemoryModel memory = {};
  double time_limit_s = 60;
  int threads = 1;
  // A placement that takes longer is of no interest: the search ends once its bound says so.
  double give_up_at = kForbidden;
  // Called now and then with the best step and the bound so far, in microseconds.
  std::function<void(double step_us, double bound_us)> progress = nullptr;
};

// What a placement takes, in microseconds.
struct PlanCost {
  double forward_kernels = 0, backward_kernels = 0;
  double visible = 0;  // moves that nothing hides
  double forward_moves = 0, backward_moves = 0;
  double step_us(bool overlap) const;
};

struct Placement {
  bool feasible = false;
  std::vector<int32_t> labels;
  PlanCost cost;
  double step_us = 0;
  double bound_us = 0;  // no placement takes less
  int64_t peak_bytes = 0;
  double gap() const { return step_us > 0 ? (step_us - bound_us) / step_us : 0; }
};

PlanCost CostOf(const PlaceProblem& problem, const std::vector<int32_t>& labels);

Placement Search(const PlaceProblem& problem, const SearchOptions& options);

// The smallest limit on memory for which there is a placement, to about a percent.
int64_t SmallestMemory(const PlaceProblem& problem, const SearchOptions& options);

}  // namespace gt::placement
