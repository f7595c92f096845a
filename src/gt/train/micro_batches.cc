#include "gt/train/micro_batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "gt/torch_bridge/generator.h"
#include "gt/train/profile.h"
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

struct Batches {
  std::vector<Batch> batches;
  int64_t valid_tokens = 0;  // of all ranks
};

Batches TakeBatches(Job& job, Progress& progress) {
  Batches taken;
  for (int64_t i = 0; i < job.micro_batches; ++i) {
    taken.batches.push_back(job.share.ToDevice(job.data->Next(), job.device));
    taken.valid_tokens += taken.batches.back().valid_tokens;
  }
  const double own = job.share.OfTokens(static_cast<double>(taken.valid_tokens));
  taken.valid_tokens = static_cast<int64_t>(job.world.Sum({own})[0]);
  progress.tokens += taken.valid_tokens;
  progress.batches += job.micro_batches;
  progress.data = job.data->State();
  return taken;
}

}  // namespace

StepResult RunMicroBatches(Job& job, TrainingState& state, RunningStep& running,
                           RunReports& reports, int64_t step) {
  const Batches taken = TakeBatches(job, state.progress);
  std::optional<StepProfile> profile;
  if (job.profiled.contains(step)) profile.emplace(job.device);
  StepResult total;
  at::NoGradGuard no_gradients;
  int64_t number = state.progress.batches - job.micro_batches;
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
