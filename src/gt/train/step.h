// One train step: from a batch to the loss and the gradients. Eager runs the model under libtorch's
// autograd; captured runs the same step as one graph. The rest of the trainer cannot tell them
// apart, and neither can the bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gt/compile/compile.h"
#include "gt/config/config.h"
#include "gt/exec/program.h"
#include "gt/models/loss.h"
#include "gt/models/model.h"
#include "gt/sim/memory_curve.h"
#include "gt/train/batch.h"

namespace gt {

struct StepResult {
  at::Tensor loss;  // a scalar, on the device
  std::vector<at::Tensor>
      gradients;  // in the order of model.parameters(); undefined where there is none
};

class TrainStep {
 public:
  virtual ~TrainStep() = default;
  // The loss is divided by `valid_tokens`, which may count the tokens of several batches whose
  // gradients are added up.
  virtual StepResult Run(const Batch& batch, int64_t valid_tokens) = 0;
  // The tensors of a result are overwritten by the next run: copy what must outlive it.
  virtual bool reuses_results() const { return false; }
  // The graph that runs, and the value of each of its symbols in the last run; null for an eager step.
  virtual const Graph* graph() const { return nullptr; }
  virtual std::span<const int64_t> symbol_values() const { return {}; }
  // Goes on with the same nodes in another order.
  virtual void Reorder(std::unique_ptr<Graph> graph);
};

std::unique_ptr<TrainStep> MakeEagerStep(LanguageModel& model, const LossConfig& loss);

struct ExecutionOptions {
  ExecutorKind executor = ExecutorKind::kFast;
  // A step on a GPU that never waits for the device becomes a CUDA graph after two ordinary runs.
  bool device_graph = false;
  // What else is in the device's memory: for the table of a step that runs out of it.
  MemoryOptions memory = {};
};

// Runs a captured step with the parameters and buffers that the model has now: it may have been
// captured before they had memory.
std::unique_ptr<TrainStep> MakeCapturedStep(LanguageModel& model, CompiledStep compiled,
                                            ExecutionOptions options = {});

}  // namespace gt
