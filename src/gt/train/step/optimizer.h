// AdamW with decoupled weight decay, one fused kernel over all parameters, and global-norm clipping
// before it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gt/job/sections/optimizer.h"
#include "gt/kernels/list_kernels.h"

namespace gt {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// All parameters of a module by full name, in registration order.
NamedTensors NamedParameters(const torch::nn::Module& module);

class AdamW {
 public:
  // Parameters whose name matches a pattern of config.no_decay do not decay.
  AdamW(const NamedTensors& parameters, const OptimizerSection& config);

  // One update. gradients[i] belongs to parameter i; an undefined one leaves its parameter alone.
  // The gradients count times `factor`, and may be overwritten when that is not 1.
  void Step(std::span<const at::Tensor> gradients, double learning_rate, double factor = 1.0);

  // Everything that a later update depends on, under names made from those of the parameters.
  struct StateTensor {
    std::string name;
    std::string parameter;
    at::Tensor tensor;
  };
  std::vector<StateTensor> State() const;

  // For what else is computed of all gradients.
  ListKernels& kernels() { return kernels_; }

 private:
  // Parameters that decay alike, as the lists that libtorch's kernel takes; several such groups where
  // they can run side by side.
  struct Group {
    double weight_decay = 0.0;
    int64_t elements = 0;
    std::vector<size_t> positions;  // among all parameters
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters, mean, mean_square, steps;
  };
  // All groups in one launch; false where only libtorch's kernel can do it.
  bool StepAtOnce(std::span<const at::Tensor> gradients, const AdamWRates& rates);
  void StepGroup(Group& group, std::span<const at::Tensor> gradients, const AdamWRates& rates);

  std::vector<Group> groups_;
  ListKernels kernels_;
  OptimizerSection config_;
};

// Gradients as the optimizer wants them: each with the strides of its parameter and with memory of
// its own, so that scaling one never touches another. Applied to captured and eager gradients
// alike.
std::vector<at::Tensor> OwnGradients(std::span<const at::Tensor> parameters,
                                     std::vector<at::Tensor> gradients);

// sum[i] += more[i], where there is one. A sum that is undefined takes the other's gradient.
void AddGradients(std::vector<at::Tensor>& sum, std::span<const at::Tensor> more);

// The norm of all gradients together, to 1e-6 for those of float32; by `kernels` where they can.
double GradientNorm(std::span<const at::Tensor> gradients, ListKernels* kernels = nullptr);

// The factor on gradients that brings their norm down to `max_norm`: 1 where it is not above it, and
// always 1 when max_norm is 0.
struct Clipping {
  double norm = 0.0;
  double factor = 1.0;
};
Clipping ClippingFor(double norm, double max_norm);

// The factor on the learning rate at step 0, 1, ...: linear warm-up, constant, decay to
// min_lr_factor.
double LearningRateFactor(int64_t step, int64_t total_steps, const LrSchedulerSection& config);

}  // namespace gt
