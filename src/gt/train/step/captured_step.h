// The train step as one graph that is replayed.
#pragma once

#include <filesystem>
#include <memory>

#include "gt/compile/compile.h"
#include "gt/job/sections/compile.h"
#include "gt/models/model.h"
#include "gt/sim/memory_curve.h"
#include "gt/train/step/step.h"

namespace gt {

struct ExecutionOptions {
  ExecutorKind executor = ExecutorKind::kFast;
  // After two ordinary runs, the stretches of a step on a GPU that the host has no part in become CUDA
  // graphs; with `records_collectives` (a fact of the backend), collectives are part of them.
  bool device_graphs = false;
  bool records_collectives = false;
  // Where compiled kernels are kept for the next run; empty: nowhere.
  std::filesystem::path kernel_store = {};
  // What else is in the device's memory: for the table of a step that runs out of it.
  MemoryOptions memory = {};
};

// Runs a compiled step with the parameters and buffers that the model has now: it may have been
// captured before they had memory.
std::unique_ptr<TrainStep> MakeCapturedStep(LanguageModel& model, CompiledStep compiled,
                                            ExecutionOptions options = {});

}  // namespace gt
