// One train step: from a batch to the loss and the gradients. Eager runs the model under libtorch's
// autograd; captured runs the same step as one graph. The rest of the trainer cannot tell them
// apart, and neither can the bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "gt/config/config.h"
#include "gt/exec/program.h"
#include "gt/models/model.h"
#include "gt/passes/manager.h"
#include "gt/trace/capture.h"
#include "gt/train/data.h"

namespace gt {

struct StepResult {
  at::Tensor loss;  // a scalar, on the device
  std::vector<at::Tensor>
      gradients;  // in the order of model.parameters(); undefined where there is none
};

class TrainStep {
 public:
  virtual ~TrainStep() = default;
  virtual StepResult Run(const Batch& batch) = 0;
};

// Cross entropy over all tokens divided by the number of valid ones. A function of the model alone,
// so that eager and captured steps share it to the letter.
at::Tensor LossOf(LanguageModel& model, const at::Tensor& tokens, const at::Tensor& labels,
                  const at::Tensor& valid_tokens);

std::unique_ptr<TrainStep> MakeEagerStep(LanguageModel& model);

struct CaptureReport {
  double capture_seconds = 0;
  PipelineReport passes;
  int64_t captured_nodes = 0;
  int64_t nodes = 0;
};

// Captures the step (with the batch dimension symbolic when `symbolic_batch`) and applies the
// configured passes. Dumps and reproducers go to `dump_folder`.
Captured CaptureStep(LanguageModel& model, const Config& config, c10::Device device,
                     bool symbolic_batch, CaptureReport* report);

// Runs a captured step; the executor is the configured one.
std::unique_ptr<TrainStep> MakeCapturedStep(LanguageModel& model, Captured captured,
                                            ExecutorKind executor);

// Casts parameters to `dtype` wherever they are used; gradients come back in the stored dtype.
void CastParametersForCompute(LanguageModel& model, at::ScalarType dtype);

}  // namespace gt
