// One train step: from a batch to the loss and the gradients. There are two kinds, eager_step.h and
// captured_step.h; the rest of the trainer cannot tell them apart, and neither can the bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/train/step/batch.h"

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

// The divisor of the loss as the input of a step on the device of the batch.
at::Tensor ValidTokens(int64_t count, const Batch& batch);

}  // namespace gt
