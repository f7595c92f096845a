// What a placement uses of a rank's memory, as usage and live ranges of the variables of its problem:
// parameters with their optimizer state all the time, gradients from where they are made, values up to
// where they are used last, gathered parameters only around their uses.
#pragma once

#include <cstdint>

#include "gt/placement/place_problem.h"

namespace gt::placement {

struct MemoryModel {
  int32_t optimizer_copies = 2;  // of a parameter: AdamW keeps two numbers for each element
  // Over several batches, so that there are gradients all the time.
  bool accumulates_gradients = false;
  int64_t limit = 0;  // bytes of a rank; 0: none
};

// Sets usage, live ranges and limit. Forward values whose meta says that they are recomputed are alive
// until their last use in the forward.
void AddMemory(const PlaceProblem& problem, const MemoryModel& memory, LabelProblem& labels);

}  // namespace gt::placement
