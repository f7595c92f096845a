// Cross entropy of a language model. A function of the model alone, so that eager and captured steps
// share it to the letter.
#pragma once

#include <ATen/core/Tensor.h>

#include "gt/models/model.h"

namespace gt {

struct LossConfig {
  // The tokens are taken in so many parts, one after another: logits exist for one part at a time,
  // because their gradients are computed immediately and logits themselves are never kept.
  int64_t chunks = 1;
  double z_loss = 0.0;  // weight of the squared logarithm of the softmax's denominator
};

inline constexpr int64_t kIgnoredLabel = -100;

// The sum over all tokens whose label is not kIgnoredLabel, divided by `valid_tokens`.
at::Tensor LossOf(LanguageModel& model, const ModelInputs& inputs, const at::Tensor& labels,
                  const at::Tensor& valid_tokens, const LossConfig& config);

}  // namespace gt
