// Kernels, written by hand, of operators that reduce rows: sums in the middle of what would otherwise be one
// pass over memory. Each adds up in an order that depends on the length of a row alone, so that a call gives
// the same bits wherever it is made. Text that the driver's compiler takes; kernels/row_operators.cc launches it.
#pragma once

#include <cstdint>
#include <optional>

#include "gt/fusion/kernel_template.h"

namespace gt::fusion {

// How a row is divided among the threads of a block: each takes `vectors` vectors of `lanes` neighbouring
// elements, one every `threads` vectors.
struct RowShape {
  int threads = 32;
  int lanes = 1;
  int vectors = 1;
};
// `alignment`: elements that rows begin at a multiple of. Nothing where rows are too long to be held in
// registers.
std::optional<RowShape> RowShapeFor(int64_t width, int64_t alignment, DType dtype);

// Whether rows of this dtype have kernels: bf16, f16, f32.
bool HasRowKernels(DType dtype);

// out = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps). With `added` the input is the sum of two tensors,
// rounded as an addition does, which is stored as well.
//   (x, other, weight, sum, out, rstd, eps, stride of x, stride of other, width)
RowKernel RmsNormSource(DType dtype, const RowShape& shape, bool added);

// The gradient of the input, and for each block the sum of its rows' gradients of the weight. With `added`
// that is added to the rounded gradient.
//   (grad, x, rstd, weight, other, result, partial sums, rows, stride of grad, stride of x, stride of other, width)
RowKernel RmsNormBackwardSource(DType dtype, const RowShape& shape, bool added);
// How many blocks share the rows.
int64_t RmsNormBackwardBlocks(int64_t rows, const RowShape& shape);
// Sums the columns of a float32 matrix. (partial sums, result, rows, width), 32 columns a block.
RowKernel ColumnSumSource(DType result);

// The logarithm of the sum of exponentials of each row, one block for each.
//   (x, result, stride, width)
RowKernel LogSumExpSource(DType dtype, int lanes);

// exp(x - log_sum) * scale - (column == label ? grad : 0), rows given by blocks.
//   (grad, scale, x, labels, log_sum, result, stride of x, width, blocks a row)
RowKernel CrossEntropyBackwardSource(DType dtype, int lanes);

// Products of rows, added up in float32: one warp for each. Result i is of rows i / inner and i % inner, by
// two strides; with `looked_up` the row of `a` is index[i].
//   (a, b, index, result, count, inner, strides of a (2), strides of b (2), width)
RowKernel RowDotsSource(DType a, DType b, int lanes, bool looked_up);

inline constexpr int kRowThreads = 256;     // of RowDots and CrossEntropyBackward
inline constexpr int kLogSumThreads = 512;  // of LogSumExp
inline constexpr int kColumnThreads = 512;  // of ColumnSum

}  // namespace gt::fusion
