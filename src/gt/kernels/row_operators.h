// Operators of our own that reduce rows: norms, products of rows, cross entropy. On a GPU each is a kernel
// (fusion/row_kernels.h) that NVRTC compiles when it is first needed; on a CPU, for dtypes without a kernel and
// where NVRTC is missing, libtorch's operators do the same one after another. A process takes one way, so that
// eager and captured steps have the same bits; the two ways differ in the order of sums.
//
// These functions call through the dispatcher, so that capturing sees one operator. None is differentiable:
// callers have the derivative (torch::autograd::Function).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace gt {

// x / sqrt(mean(x^2) + eps) * weight over the last dimension, and the reciprocal root: [..., 1], float32.
std::tuple<at::Tensor, at::Tensor> RowRmsNorm(const at::Tensor& input, const at::Tensor& weight,
                                              double eps);
// Gradients of input and weight.
std::tuple<at::Tensor, at::Tensor> RowRmsNormBackward(const at::Tensor& grad,
                                                      const at::Tensor& input,
                                                      const at::Tensor& rstd,
                                                      const at::Tensor& weight);

// Sums of products along the last dimension, in float32; other dimensions are broadcast.
at::Tensor RowDots(const at::Tensor& a, const at::Tensor& b);

// log(sum(exp(x))) along the last dimension, in float32.
at::Tensor RowLogSumExp(const at::Tensor& self);
// softmax(self) * scale - one_hot(target) * grad, of rows: [tokens, classes] in the dtype of `self`. A target
// that is no class has no one.
at::Tensor CrossEntropyBackward(const at::Tensor& grad, const at::Tensor& scale,
                                const at::Tensor& self, const at::Tensor& target,
                                const at::Tensor& log_sum, int64_t ignore_index);

}  // namespace gt
