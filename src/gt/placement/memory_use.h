// What a placement uses of a rank's memory, as usage and live ranges of the variables of its problem:
// parameters with their gradients and optimizer state all the time, values from where they are made to
// where they are used last, gathered parameters only around their uses.
#pragma once

#include <cstdint>

#include "gt/placement/place_problem.h"

namespace gt::placement {

struct MemoryModel {
  // Bytes that go with each element of a parameter besides itself: its gradient, the optimizer's state.
  double gradient_bytes = 4;
  double optimizer_bytes = 8;
  int64_t workspace = 0;  // libraries and communicators, whatever the placement is
  int64_t limit = 0;      // bytes of a rank; 0: none
};

// Sets usage, live ranges and limit. Forward values whose meta says that they are recomputed are alive
// until their last use in the forward.
void AddMemory(const PlaceProblem& problem, const MemoryModel& memory, LabelProblem& labels);

}  // namespace gt::placement
