// Which experts a token is sent to, and how much each counts, as operators of our own. On a GPU each is a kernel
// (fusion/router_kernels.h); where there is none (a CPU, float64, more than 512 experts, no NVRTC) libtorch's
// operators do the same one after another. As for operators on rows (row_operators.h), a process takes one way,
// and callers have the derivative.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace gt {

struct RouterOptions {
  int64_t top_k = 1;
  bool sigmoid = false;  // scores of logits: sigmoid, or softmax
  // Experts are in `groups` equal groups; only the best `kept_groups` of them, by the sum of their two best
  // choices, may be chosen from.
  int64_t groups = 1, kept_groups = 1;
  bool normalize = false;  // chosen scores are divided by their sum
  double scale = 1.0;      // and multiplied by this
};

// logits: [tokens, experts], float32 or float64. bias: [experts], added to scores for choosing alone. Returns
// weights and experts, [tokens, k]: the largest score first, of equal ones the expert with the lowest number.
std::tuple<at::Tensor, at::Tensor> Route(const at::Tensor& logits,
                                         const std::optional<at::Tensor>& bias,
                                         const RouterOptions& options);
// The gradient of the logits, `grad` being that of the weights.
at::Tensor RouteBackward(const at::Tensor& grad, const at::Tensor& logits,
                         const at::Tensor& experts, const RouterOptions& options);

}  // namespace gt
