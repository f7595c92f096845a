#include "gt/train/optimizer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <unordered_set>

#include "gt/base/error.h"

namespace gt {
namespace {

std::vector<at::Tensor> Defined(std::span<const at::Tensor> tensors) {
  std::vector<at::Tensor> defined;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) defined.push_back(tensor);
  }
  return defined;
}

}  // namespace

AdamW::AdamW(std::vector<at::Tensor> parameters, const Config::Optimizer& config)
    : parameters_(std::move(parameters)), config_(config) {
  for (const at::Tensor& parameter : parameters_) {
    mean_.push_back(at::zeros_like(parameter));
    mean_square_.push_back(at::zeros_like(parameter));
    steps_.push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
  }
}

void AdamW::Step(std::span<const at::Tensor> gradients, double learning_rate) {
  at::NoGradGuard no_gradients;
  std::vector<at::Tensor> parameters, given, mean, mean_square, steps;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!gradients[i].defined()) continue;
    parameters.push_back(parameters_[i]);
    given.push_back(gradients[i]);
    mean.push_back(mean_[i]);
    mean_square.push_back(mean_square_[i]);
    steps.push_back(steps_[i]);
  }
  at::_foreach_add_(steps, 1);
  at::_fused_adamw_(parameters, given, mean, mean_square, /*max_exp_avg_sqs=*/{}, steps,
                    learning_rate, config_.beta1, config_.beta2, config_.weight_decay, config_.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

std::vector<at::Tensor> OwnGradients(std::span<const at::Tensor> parameters,
                                     std::vector<at::Tensor> gradients) {
  std::unordered_set<const void*> owned;
  for (size_t i = 0; i < gradients.size(); ++i) {
    at::Tensor& gradient = gradients[i];
    if (!gradient.defined()) continue;
    bool shared = !owned.insert(gradient.storage().unsafeGetStorageImpl()).second;
    bool same_layout = gradient.strides() == parameters[i].strides();
    if (!shared && same_layout && gradient.scalar_type() == parameters[i].scalar_type()) continue;
    at::Tensor own = at::empty_like(parameters[i]);
    own.copy_(gradient);
    gradient = own;
    owned.insert(gradient.storage().unsafeGetStorageImpl());
  }
  return gradients;
}

double ClipGradients(std::span<const at::Tensor> gradients, double max_norm) {
  at::NoGradGuard no_gradients;
  std::vector<at::Tensor> defined = Defined(gradients);
  if (defined.empty()) return 0.0;
  at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(defined, 2)), 2);
  if (max_norm > 0) {
    // On the device, without waiting for the number: where nothing is clipped the factor is
    // exactly 1.
    at::Tensor factor = (max_norm / (norm + 1e-6)).clamp_max(1.0);
    at::_foreach_mul_(defined, factor);
  }
  return norm.item<double>();
}

double LearningRateFactor(int64_t step, int64_t total_steps, const Config::LrScheduler& config) {
  int64_t warmup = std::min(config.warmup_steps, total_steps);
  auto decay =
      static_cast<int64_t>(std::llround(static_cast<double>(total_steps) * config.decay_ratio));
  decay = std::min(decay, total_steps - warmup);
  if (config.decay_type == DecayType::kNone) decay = 0;
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  int64_t stable_end =
      total_steps + 1 - decay;  // the last step of the run is the first that would be 0
  if (decay == 0 || step + 1 < stable_end) return 1.0;
  double progress = static_cast<double>(step + 1 - stable_end) / static_cast<double>(decay);
  double factor = 1.0;
  switch (config.decay_type) {
    case DecayType::kLinear:
      factor = 1.0 - progress;
      break;
    case DecayType::kSqrt:
      factor = 1.0 - std::sqrt(progress);
      break;
    case DecayType::kCosine:
      factor = 0.5 * (1.0 + std::cos(M_PI * progress));
      break;
    case DecayType::kNone:
      break;
  }
  return config.min_lr_factor + (1.0 - config.min_lr_factor) * factor;
}

}  // namespace gt
