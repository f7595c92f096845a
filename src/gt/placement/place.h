// The search: the cheapest placement of a step, with a bound that says how far from the best it can be.
// What a step takes, and how its least time is found, is in step_problem.h and step_search.h.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gt/placement/memory_use.h"
#include "gt/placement/place_problem.h"

namespace gt::placement {

struct SearchOptions {
  bool overlap = true;  // false: every move is waited for
  MemoryModel memory = {};
  // Microseconds for each GiB above the limit of memory; 0: nothing may be above it.
  double memory_price = 0;
  double relative_gap = 4e-5;  // good enough
  double time_limit_s = 60;
  // How much the search may do, whatever the machine; see StepOptions.
  double work_limit = 8.8e9;
  int question_limit = 1000;
  int threads = 1;  // placements do not depend on it
  // A variable of the problem and the label it must have.
  std::optional<std::pair<int32_t, int32_t>> forced = std::nullopt;
  // Placements to improve on, asked for when they are needed; null: none.
  std::function<std::vector<std::vector<int32_t>>()> starts = nullptr;
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
  double share_taken = 0;  // of compute, by moves beside kernels
  double step_us(bool overlap) const;
};

struct Placement {
  bool feasible = false;
  std::vector<int32_t> labels;
  PlanCost cost;
  double step_us = 0;
  double charged_us = 0;  // for memory above the limit, if it has a price
  double bound_us = 0;    // no placement takes less, with what it is charged
  int64_t peak_bytes = 0;
  std::vector<std::vector<int32_t>> met;  // labels of others on the way, whether or not they fit
  double total_us() const { return step_us + charged_us; }
  double gap() const { return total_us() > 0 ? (total_us() - bound_us) / total_us() : 0; }
};

PlanCost CostOf(const PlaceProblem& problem, const std::vector<int32_t>& labels);

// What a placement with these labels takes, of time and of memory; feasible if it fits. Without a bound.
Placement PlacementOf(const PlaceProblem& problem, const SearchOptions& options,
                      std::vector<int32_t> labels);

Placement Search(const PlaceProblem& problem, const SearchOptions& options);

// The placement that needs the least memory, to about a percent, whatever the limit is. Not feasible if
// demands contradict each other, or time ended before there was one.
Placement SmallestPlacement(const PlaceProblem& problem, const SearchOptions& options);

}  // namespace gt::placement
