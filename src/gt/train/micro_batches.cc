#include "gt/train/micro_batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "gt/torch_bridge/generator.h"
#include "gt/train/profile.h"
#include "gt/train/signals.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/optimizer.h"

namespace gt {
namespace {

StepResult CopyOf(const StepResult& result) {
  StepResult copy{result.loss.clone(), {}};
  for (const at::Tensor& gradient : result.gradients) {
    copy.gradients.push_back(gradient.defined() ? gradient.clone() : gradient);
  }
  return copy;
}

// Every batch of every rank draws numbers of its own, and the same ones when the run is continued. The
// ranks of a placed job draw the same: those that one device would draw.
uint64_t RandomSeed(const Job& job, int64_t batch) {
  uint64_t seed = static_cast<uint64_t>(job.config.training.seed);
  for (uint64_t part :
       {static_cast<uint64_t>(job.share.random_stream()), static_cast<uint64_t>(batch)}) {
    seed = (seed ^ part) * 0x9e3779b97f4a7c15ull;
    seed ^= seed >> 32;
  }
  return seed;
}

// The signal that any rank has received: the same one where all have received the same, else the usual one.
int AgreedSignal(double sum, double count) {
  if (count == 0) return 0;
  const int signal = static_cast<int>(sum / count);
  return IsStopSignal(signal) ? signal : SIGTERM;
}

}  // namespace

TakenBatches TakeBatches(Job& job, int signal) {
  TakenBatches taken;
  taken.data_before = job.data->State();
  for (int64_t i = 0; i < job.micro_batches; ++i) {
    taken.batches.push_back(job.share.ToDevice(job.data->Next(), job.device));
    taken.valid_tokens += taken.batches.back().valid_tokens;
  }
  const double own = job.share.OfTokens(static_cast<double>(taken.valid_tokens));
  const std::vector<double> sums =
      job.world.Sum({own, static_cast<double>(signal), signal > 0 ? 1.0 : 0.0});
  taken.valid_tokens = static_cast<int64_t>(sums[0]);
  taken.signal = AgreedSignal(sums[1], sums[2]);
  return taken;
}

StepResult RunMicroBatches(Job& job, TrainingState& state, RunningStep& running,
                           RunReports& reports, int64_t step, const TakenBatches& taken) {
  Progress& progress = state.progress;
  progress.tokens += taken.valid_tokens;
  progress.batches += job.micro_batches;
  progress.data = job.data->State();
  std::optional<StepProfile> profile;
  if (job.profiled.contains(step)) profile.emplace(job.device);
  StepResult total;
  at::NoGradGuard no_gradients;
  int64_t number = progress.batches - job.micro_batches;
  for (const Batch& batch : taken.batches) {
    SeedGenerator(job.device, RandomSeed(job, number++));
    StepResult part = running.Run(batch, std::max<int64_t>(taken.valid_tokens, 1));
    if (job.micro_batches > 1 && running.reuses_results()) part = CopyOf(part);
    std::vector<at::Tensor> owned = OwnGradients(state.parameters, std::move(part.gradients));
    if (!total.loss.defined()) {
      total = {part.loss, std::move(owned)};
      continue;
    }
    total.loss = total.loss + part.loss;
    AddGradients(total.gradients, owned);
  }
  if (profile) reports.OnProfile(*profile, step, running);
  return total;
}

}  // namespace gt
