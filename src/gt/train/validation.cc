#include "gt/train/validation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "gt/compile/configured_model.h"
#include "gt/models/loss.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"

namespace gt {

bool ValidatesAfter(const Job& job, int64_t step) {
  return job.validation != nullptr &&
         (step % job.config.validation.freq == 0 || step == job.config.training.steps);
}

namespace {

// The model of a placed job cannot run eagerly: its parameters are shards. The loss is captured from one
// without memory, and placed as the step is.
TrainStep& PlacedLoss(Job& job) {
  if (job.placed_validation != nullptr) return *job.placed_validation;
  const ModelPtr model = BuildConfiguredModel(job.config);
  model->eval();
  Captured captured = CapturePlacedLoss({.model = *model,
                                         .config = job.config,
                                         .device = job.device,
                                         .mesh = job.mesh,
                                         .world = &job.world,
                                         .cluster = job.cluster},
                                        *job.placed);
  CompiledStep step;
  step.graph = std::move(captured.graph);
  step.bound_inputs = std::move(captured.bound_inputs);
  job.placed_validation =
      MakeCapturedStep(*job.model, std::move(step), {.executor = job.config.compile.executor});
  return *job.placed_validation;
}

double LossSum(Job& job, const Batch& batch) {
  if (job.placed) return PlacedLoss(job).Run(batch, 1).loss.item<double>();
  at::Tensor one = at::ones({}, batch.tokens.options().dtype(at::kFloat));
  LossConfig loss = LossConfigOf(job.config, *job.model);
  loss.z_loss = 0.0;
  return LossOf(*job.model, {batch.tokens, batch.positions}, batch.labels, one, loss)
      .item<double>();
}

// All ranks end after the same batch, since they communicate in the next one.
bool AnyHasSignal(Job& job, const SignalWatch& signals) {
  return job.world.Max({signals.received() != 0 ? 1.0 : 0.0})[0] > 0;
}

}  // namespace

std::optional<double> ValidationLoss(Job& job, const SignalWatch& signals) {
  at::NoGradGuard no_gradients;
  LanguageModel& model = *job.model;
  model.eval();
  job.validation->Rewind();
  double sum = 0;
  int64_t tokens = 0;
  bool stopped = false;
  for (int64_t i = 0; i < job.config.validation.steps; ++i) {
    stopped = AnyHasSignal(job, signals);
    if (stopped) break;
    Batch batch = job.share.ToDevice(job.validation->Next(), job.device);
    sum += LossSum(job, batch);
    tokens += batch.valid_tokens;
  }
  model.train();
  if (stopped) return std::nullopt;
  std::vector<double> sums =
      job.world.Sum({job.share.OfLoss(sum), job.share.OfTokens(static_cast<double>(tokens))});
  return sums[0] / std::max(sums[1], 1.0);
}

}  // namespace gt
