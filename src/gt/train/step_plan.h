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
  bool cuda_graphs = false;    // wanted, and there is memory for them
  // What communication is predicted to take and to hide; empty for a step without any.
  std::string overlap_table;
};

// Compiles the step and says what it will need; nothing for an eager job, of which nothing is captured.
// Fails where the step cannot be captured, does not fit, or ranks would communicate differently. All
// ranks must call it.
std::optional<StepPlan> PlanStep(Job& job);

// What eager ranks compare before the first step, since they have no graphs whose collectives could be
// compared: names, types and sizes of the whole model's tensors. Options agree by then, so models differ
// only where the files do that they are built from (--model.hf_path), and what such files decide shows
// here. A model whose code communicates differently from rank to rank is not found before it runs: then
// the watch of collectives (dist/watch.h) names rank and collective. Fails with RanksDisagree.
void AgreeOnModel(World& world, LanguageModel& model);

}  // namespace gt
