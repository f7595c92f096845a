#include "gt/train/validation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "gt/compile/configured_model.h"
#include "gt/models/loss.h"
#include "gt/train/batch.h"

namespace gt {

bool ValidatesAfter(const Job& job, int64_t step) {
  return job.validation != nullptr &&
         (step % job.config.validation.freq == 0 || step == job.config.training.steps);
}

double ValidationLoss(Job& job) {
  at::NoGradGuard no_gradients;
  LanguageModel& model = *job.model;
  model.eval();
  job.validation = MakeValidationData(job.config, model, *job.codec, job.share);
  double sum = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < job.config.validation.steps; ++i) {
    Batch batch = job.share.ToDevice(job.validation->Next(), job.device);
    at::Tensor one = at::ones({}, batch.tokens.options().dtype(at::kFloat));
    LossConfig loss = LossConfigOf(job.config, model);
    loss.z_loss = 0.0;
    sum += LossOf(model, {batch.tokens, batch.positions}, batch.labels, one, loss).item<double>();
    tokens += batch.valid_tokens;
  }
  model.train();
  std::vector<double> sums =
      job.world.Sum({job.share.OfLoss(sum), job.share.OfTokens(static_cast<double>(tokens))});
  return sums[0] / std::max(sums[1], 1.0);
}

}  // namespace gt
