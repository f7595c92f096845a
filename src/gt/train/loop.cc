#include "gt/train/loop.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "gt/job/config.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/micro_batches.h"
#include "gt/train/state_hash.h"
#include "gt/train/validation.h"

namespace gt {
namespace {

double Seconds(Loop::Clock::time_point from, Loop::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Loop::Loop(Job& job, TrainingState& state, RunningStep& running, RunReports& reports)
    : job_(job),
      state_(state),
      running_(running),
      reports_(reports),
      first_step_(state.progress.step) {
  ResetPeakMemory(job.device);
  reports.Begin(first_step_);
  start_ = before_ = Clock::now();
}

double Loop::seconds() const { return Seconds(start_, Clock::now()); }

// Ranks agree on a signal where they add up the tokens of the next step anyway: whatever has arrived by then
// ends the run after the step that is done.
TrainSummary Loop::Run(SignalWatch& signals) {
  TrainSummary summary;
  summary.steps = first_step_;
  while (state_.progress.step < job_.config.training.steps) {
    if (job_.fault) job_.fault->Strike(job_.world.rank(), state_.progress.step + 1, job_.device);
    const double waited = job_.data->waited_seconds();
    signals.Decide();
    TakenBatches taken = TakeBatches(job_, signals.received());
    taken.waited_seconds = job_.data->waited_seconds() - waited;
    summary.signal = taken.signal;
    if (summary.signal != 0) break;
    signals.SetStep(state_.progress.step + 1);
    StepMetrics metrics = OneStep(taken, signals);
    if (metrics.step == first_step_ + 1) summary.first_loss = metrics.loss;
    summary.last_loss = metrics.loss;
    summary.steps = metrics.step;
  }
  signals.SetStep(0);
  reports_.End();
  return summary;
}

StepMetrics Loop::OneStep(const TakenBatches& taken, const SignalWatch& signals) {
  const Config& config = job_.config;
  Progress& progress = state_.progress;
  StepMetrics metrics;
  metrics.step = progress.step + 1;
  BeforeStep before{taken.data_before, progress.tokens};
  StepResult result = RunMicroBatches(job_, state_, running_, reports_, metrics.step, taken);
  Clipping clipping = SumUp(result, &metrics);
  if (config.metrics.hashes) {
    metrics.hashes = HashStep(*job_.model, result.gradients, job_.world);
  }
  metrics.learning_rate =
      config.optimizer.lr *
      LearningRateFactor(progress.step, config.training.steps, config.lr_scheduler);
  // Weights are never updated from a broken gradient: they stay as they were before the step.
  const bool finite = std::isfinite(metrics.loss) && std::isfinite(metrics.grad_norm);
  if (finite) {
    BeforeUpdate(&metrics);
    state_.optimizer->Step(result.gradients, metrics.learning_rate, clipping.factor);
    progress.step = metrics.step;
  }
  const std::string new_order = running_.FollowLoads(metrics);
  if (!new_order.empty()) reports_.Interject(new_order);
  metrics.data_wait = taken.waited_seconds;
  metrics.tokens = progress.tokens;
  metrics.seconds = Seconds(before_, Clock::now());
  training_seconds_ += metrics.seconds;
  if (finite && ValidatesAfter(job_, metrics.step)) {
    metrics.validation_loss = ValidationLoss(job_, signals);
  }
  FillRates(metrics);
  before_ = Clock::now();
  reports_.OnStep(metrics);
  if (!finite) {
    BeforeUpdate(&metrics);  // counts of the broken step are not part of the state before it
    FailNonFinite(job_, state_, metrics, std::move(before));
  }
  const bool is_best = NoteValidation(job_, progress, metrics);
  const bool is_due = is_best || metrics.step % config.checkpoint.interval == 0;
  if (config.checkpoint.enable && is_due && metrics.step != config.training.steps) {
    SaveCheckpoint(job_, state_);
    before_ = Clock::now();  // the next step's speed is its own
  }
  return metrics;
}

// Losses add up over the ranks with different tokens, squares of gradients over those with different
// shards of the parameters: those that have the same count it once.
Clipping Loop::SumUp(const StepResult& result, StepMetrics* metrics) {
  double norm = GradientNorm(state_.OwnedGradients(result.gradients, job_.world.rank()),
                             &state_.optimizer->kernels());
  double loss = result.loss.to(at::kDouble).item<double>();
  if (job_.world.size() > 1) {
    std::vector<double> sums = job_.world.Sum({job_.share.OfLoss(loss), norm * norm});
    loss = sums[0];
    norm = std::sqrt(sums[1]);
  }
  // Without the sign that a NaN may have, which would be printed.
  metrics->loss = std::isnan(loss) ? std::numeric_limits<double>::quiet_NaN() : loss;
  metrics->grad_norm = std::isnan(norm) ? std::numeric_limits<double>::quiet_NaN() : norm;
  return ClippingFor(norm, job_.config.training.max_norm);
}

void Loop::BeforeUpdate(StepMetrics* metrics) {
  const auto keep_hash = [metrics](const at::Tensor& counts) {
    if (metrics->hashes) metrics->hashes->experts = HashOfCounts(counts);
    return counts;
  };
  job_.model->BeforeUpdate([&](const at::Tensor& counts) {
    if (job_.world.size() == 1 || !job_.share.counts_experts_apart()) return keep_hash(counts);
    at::Tensor host = counts.to(at::kCPU, at::kDouble).contiguous();
    const double* data = host.const_data_ptr<double>();
    std::vector<double> sums = job_.world.Sum({data, data + host.numel()});
    return keep_hash(at::from_blob(sums.data(), host.sizes(), at::kDouble)
                         .to(counts.options(), /*non_blocking=*/false, /*copy=*/true));
  });
}

void Loop::FillRates(StepMetrics& metrics) const {
  const int64_t length = job_.config.training.seq_len;
  auto tokens = static_cast<double>(job_.SequencesPerStep() * length);
  metrics.tokens_per_second = tokens / metrics.seconds;
  if (double peak = PeakFlops(job_.device); peak > 0) {
    auto flops = static_cast<double>(job_.model->FlopsPerToken(length));
    metrics.mfu =
        100.0 * flops * metrics.tokens_per_second / (peak * static_cast<double>(job_.world.size()));
  }
  metrics.memory_bytes = MemoryOf(job_.device).peak;
  auto done = static_cast<double>(metrics.step - first_step_);
  auto left = static_cast<double>(job_.config.training.steps - metrics.step);
  metrics.eta_seconds = seconds() / done * left;
}

}  // namespace gt
