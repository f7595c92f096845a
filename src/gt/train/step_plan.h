// The captured step of a job, before any of its tensors has memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gt/compile/compile.h"
#include "gt/sim/memory_curve.h"
#include "gt/train/job.h"

namespace gt {

struct StepPlan {
  CompiledStep compiled;
  MemoryOptions memory;        // what else is in the device's memory
  int64_t predicted_peak = 0;  // bytes that will be allocated
  // What communication is predicted to take and to hide; empty for a step without any.
  std::string overlap_table;
};

// Compiles the step and says what it will need; nothing for an eager job. Fails on all ranks where the
// step cannot be captured or ranks would communicate differently, and on those where it does not fit.
std::optional<StepPlan> PlanStep(Job& job);

}  // namespace gt
