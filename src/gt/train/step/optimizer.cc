#include "gt/train/step/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "gt/base/fqn_pattern.h"
#include "gt/exec/stream_fan.h"

namespace gt {
namespace {

std::vector<at::Tensor> Defined(std::span<const at::Tensor> tensors) {
  std::vector<at::Tensor> defined;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) defined.push_back(tensor);
  }
  return defined;
}

// On a CPU a norm adds up squares one after another: in float32, ten million of them are off by 1e-5. Norms
// of short pieces are exact to 1e-6 or better, whoever has which part of a gradient. They are shorter than
// what operators share out among threads.
void AddShortPieces(const at::Tensor& tensor, std::vector<at::Tensor>& pieces) {
  constexpr int64_t kLongest = 16384;
  if (!tensor.is_cpu() || tensor.numel() <= kLongest) {
    pieces.push_back(tensor);
    return;
  }
  const bool dense = tensor.is_non_overlapping_and_dense();
  const at::Tensor whole = dense ? tensor.as_strided({tensor.numel()}, {1}) : tensor;
  const at::IntArrayRef sizes = whole.sizes();
  const int64_t dim = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
  const int64_t others = whole.numel() / sizes[static_cast<size_t>(dim)];
  for (const at::Tensor& piece : whole.split(std::max<int64_t>(1, kLongest / others), dim)) {
    AddShortPieces(piece, pieces);
  }
}

}  // namespace

NamedTensors NamedParameters(const torch::nn::Module& module) {
  NamedTensors named;
  for (const auto& item : module.named_parameters()) named.emplace_back(item.key(), item.value());
  return named;
}

AdamW::AdamW(const NamedTensors& parameters, const OptimizerSection& config) : config_(config) {
  size_t lanes = parameters.empty() ? 1 : StreamFanWidth(parameters[0].second.device());
  std::vector<Group> groups(2 * lanes);  // first those that decay
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    bool decays = std::none_of(config.no_decay.begin(), config.no_decay.end(),
                               [&](const auto& pattern) { return MatchesFqn(pattern, name); });
    auto first = groups.begin() + static_cast<ptrdiff_t>(decays ? 0 : lanes);
    // To the lane that has least to do so far.
    Group& group =
        *std::min_element(first, first + static_cast<ptrdiff_t>(lanes),
                          [](const Group& a, const Group& b) { return a.elements < b.elements; });
    group.weight_decay = decays ? config.weight_decay : 0.0;
    group.elements += parameter.numel();
    group.positions.push_back(i);
    group.names.push_back(name);
    group.parameters.push_back(parameter);
    group.mean.push_back(at::zeros_like(parameter));
    group.mean_square.push_back(at::zeros_like(parameter));
    group.steps.push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
  }
  for (Group& group : groups) {
    if (!group.positions.empty()) groups_.push_back(std::move(group));
  }
}

void AdamW::Step(std::span<const at::Tensor> gradients, double learning_rate, double factor) {
  if (groups_.empty()) return;
  at::NoGradGuard no_gradients;
  const AdamWRates rates = {learning_rate, config_.beta1, config_.beta2, config_.eps,
                            // Rounded as libtorch's kernel takes it.
                            static_cast<double>(static_cast<float>(1.0 / factor))};
  const at::Device device = groups_[0].parameters[0].device();
  RunSideBySide(device, groups_.size(), [&](size_t i) {
    std::vector<at::Tensor> steps;
    for (size_t k = 0; k < groups_[i].positions.size(); ++k) {
      if (gradients[groups_[i].positions[k]].defined()) steps.push_back(groups_[i].steps[k]);
    }
    if (!steps.empty()) at::_foreach_add_(steps, 1);
  });
  if (StepAtOnce(gradients, rates)) return;
  RunSideBySide(device, groups_.size(), [&](size_t i) { StepGroup(groups_[i], gradients, rates); });
}

bool AdamW::StepAtOnce(std::span<const at::Tensor> gradients, const AdamWRates& rates) {
  if (!groups_[0].parameters[0].is_cuda()) return false;
  std::vector<AdamWRow> rows;
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.positions.size(); ++i) {
      const at::Tensor& gradient = gradients[group.positions[i]];
      if (!gradient.defined()) continue;
      rows.push_back({group.parameters[i], gradient, group.mean[i], group.mean_square[i],
                      group.steps[i], group.weight_decay});
    }
  }
  return kernels_.UpdateAdamW(rows, rates);
}

void AdamW::StepGroup(Group& group, std::span<const at::Tensor> gradients,
                      const AdamWRates& rates) {
  std::vector<at::Tensor> parameters, given, mean, mean_square, steps;
  for (size_t i = 0; i < group.positions.size(); ++i) {
    const at::Tensor& gradient = gradients[group.positions[i]];
    if (!gradient.defined()) continue;
    parameters.push_back(group.parameters[i]);
    given.push_back(gradient);
    mean.push_back(group.mean[i]);
    mean_square.push_back(group.mean_square[i]);
    steps.push_back(group.steps[i]);
  }
  if (given.empty()) return;
  // The kernel divides gradients by a number on its way: clipping costs no pass over them.
  std::optional<at::Tensor> divisor;
  if (rates.gradient_divisor != 1.0) {
    divisor = at::full({}, rates.gradient_divisor, group.parameters[0].options().dtype(at::kFloat));
  }
  at::_fused_adamw_(parameters, given, mean, mean_square, /*max_exp_avg_sqs=*/{}, steps,
                    rates.learning_rate, rates.beta1, rates.beta2, group.weight_decay, rates.eps,
                    /*amsgrad=*/false, /*maximize=*/false, divisor);
}

std::vector<AdamW::StateTensor> AdamW::State() const {
  std::vector<StateTensor> state;
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      const std::string& name = group.names[i];
      state.push_back({"optimizer.mean." + name, name, group.mean[i]});
      state.push_back({"optimizer.mean_square." + name, name, group.mean_square[i]});
      state.push_back({"optimizer.steps." + name, name, group.steps[i]});
    }
  }
  return state;
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

void AddGradients(std::vector<at::Tensor>& sum, std::span<const at::Tensor> more) {
  std::vector<at::Tensor> left, right;
  for (size_t i = 0; i < sum.size(); ++i) {
    if (!more[i].defined()) continue;
    if (!sum[i].defined()) {
      sum[i] = more[i];
    } else {
      left.push_back(sum[i]);
      right.push_back(more[i]);
    }
  }
  if (!left.empty()) at::_foreach_add_(left, right);
}

double GradientNorm(std::span<const at::Tensor> gradients, ListKernels* kernels) {
  at::NoGradGuard no_gradients;
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& gradient : Defined(gradients)) AddShortPieces(gradient, pieces);
  if (pieces.empty()) return 0.0;
  if (kernels != nullptr && pieces[0].is_cuda()) {
    const at::Tensor squares = kernels->SumOfSquares(pieces);
    if (squares.defined()) return std::sqrt(squares.item<double>());
  }
  at::Device device = pieces[0].device();
  at::ScalarType dtype = pieces[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  size_t lanes = StreamFanWidth(device);
  std::vector<std::vector<at::Tensor>> lists(lanes), norms(lanes);
  for (size_t i = 0; i < pieces.size(); ++i) lists[i % lanes].push_back(pieces[i]);
  RunSideBySide(device, lanes, [&](size_t i) {
    if (!lists[i].empty()) norms[i] = at::_foreach_norm(lists[i], 2, dtype);
  });
  std::vector<at::Tensor> all;
  for (const auto& part : norms) all.insert(all.end(), part.begin(), part.end());
  return at::linalg_vector_norm(at::stack(all).to(at::kDouble), 2).item<double>();
}

Clipping ClippingFor(double norm, double max_norm) {
  Clipping clipping{norm, 1.0};
  if (max_norm > 0) clipping.factor = std::min(1.0, max_norm / (norm + 1e-6));
  return clipping;
}

double LearningRateFactor(int64_t step, int64_t total_steps, const LrSchedulerSection& config) {
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
