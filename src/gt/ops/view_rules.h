// How views lay out: what rules of views, and of operators that take or return views, have in
// common.
//
// Sizes read from data (token counts) are treated as libtorch treats them when it must not look:
// neither zero nor one. A dimension of such a size has strides that libtorch clamps (max(u0, 1)),
// so that layouts are compared with the clamps taken off: where they matter the tensor has no
// elements, and every view of it exists.
#pragma once

#include <cstdint>
#include <optional>

#include "gt/ir/operator.h"
#include "gt/ir/shape_env.h"
#include "gt/ir/type.h"

namespace gt::rules {

// The sizes of view and reshape with -1 replaced by what is left (at::infer_size). Rejects sizes of
// another number of elements.
Shape InferSize(RuleContext& ctx, const Shape& requested, const Shape& sizes);

// Strides under which the elements appear with the new sizes, in the same order and without moving
// them (at::detail::computeStride), or nothing. Both shapes have equally many elements.
std::optional<Shape> ViewStrides(ShapeEnv& env, const Shape& sizes, const Shape& strides,
                                 const Shape& new_sizes);

// Tensor::reshape: a view if one exists, else a row-major copy.
TensorType Reshaped(RuleContext& ctx, const TensorType& self, const Shape& new_sizes);

// What [start, end) with a step means on a dimension: both ends counted from the front and within
// the size.
struct SliceBounds {
  Dim start;
  Dim length;  // number of elements taken
};
SliceBounds ResolveSlice(RuleContext& ctx, const Dim& size, const std::optional<Dim>& start,
                         const std::optional<Dim>& end, const Dim& step);

// An index into a dimension, counted from the front. Rejects what is known to be out of range.
Dim ResolveIndex(RuleContext& ctx, const Dim& index, const Dim& size);

// A count that decides how many results a node has, so it must be one number: pinned by a guard if
// it follows from input sizes. `what` names it in the message when only data could tell, or when it
// is absurdly large.
int64_t PinnedCount(RuleContext& ctx, const Dim& count, const char* what);

// For operators that refuse other layouts. Unlike IsContiguous, which is false unless it holds for
// all sizes, this answers for the sizes at hand, and a guard records what it relied on.
void RequireContiguous(RuleContext& ctx, const Shape& sizes, const Shape& strides,
                       const char* what);

// The layout of *_scatter results: strides of self kept as they are unless elements overlap.
TensorType PreserveStridesClone(RuleContext& ctx, const TensorType& self);

// max(size, 1) replaced by size throughout.
Dim WithoutClamps(const Dim& dim);

}  // namespace gt::rules
