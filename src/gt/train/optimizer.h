// AdamW with decoupled weight decay, one fused kernel over all parameters, and global-norm clipping
// before it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "gt/config/config.h"

namespace gt {

class AdamW {
 public:
  AdamW(std::vector<at::Tensor> parameters, const Config::Optimizer& config);

  // One update. gradients[i] belongs to parameter i; an undefined one leaves its parameter alone.
  void Step(std::span<const at::Tensor> gradients, double learning_rate);

 private:
  std::vector<at::Tensor> parameters_, mean_, mean_square_, steps_;
  Config::Optimizer config_;
};

// Gradients as the optimizer wants them: each with the strides of its parameter and with memory of
// its own, so that scaling one never touches another. Applied to captured and eager gradients
// alike.
std::vector<at::Tensor> OwnGradients(std::span<const at::Tensor> parameters,
                                     std::vector<at::Tensor> gradients);

// Scales the gradients in place so that their global norm is at most max_norm (0: leaves them) and
// returns the norm they had.
double ClipGradients(std::span<const at::Tensor> gradients, double max_norm);

// The factor on the learning rate at step 0, 1, ...: linear warm-up, constant, decay to
// min_lr_factor.
double LearningRateFactor(int64_t step, int64_t total_steps, const Config::LrScheduler& config);

}  // namespace gt
