// Sharding rules of views, of their copies and gradients, and of operators that move elements: all
// of them follow from where each dimension goes, and all are linear.
#pragma once

#include "gt/ir/sharding.h"

namespace gt::rules {

// view, reshape: from the sizes alone. Both sides are taken apart into groups of dimensions of
// equal products; the first dimensions of a group are cut together.
void RegroupSharding(ShardingContext& ctx);
// view.dtype: the last dimension changes its size with the elements'.
void ReinterpretSharding(ShardingContext& ctx);

void TSharding(ShardingContext& ctx);
void TransposeSharding(ShardingContext& ctx);
void PermuteSharding(ShardingContext& ctx);
void ExpandSharding(ShardingContext& ctx);
void UnsqueezeSharding(ShardingContext& ctx);
void SqueezeSharding(ShardingContext& ctx);
void SliceSharding(ShardingContext& ctx);
void SelectSharding(ShardingContext& ctx);
void SplitSharding(ShardingContext& ctx);
void UnbindSharding(ShardingContext& ctx);
void DiagonalSharding(ShardingContext& ctx);
void UnfoldSharding(ShardingContext& ctx);
// view_as_real, view_as_complex: all dimensions but the one of the two parts.
void ComplexPartsSharding(ShardingContext& ctx);

void SliceBackwardSharding(ShardingContext& ctx);
void SelectBackwardSharding(ShardingContext& ctx);
void DiagonalBackwardSharding(ShardingContext& ctx);
void UnfoldBackwardSharding(ShardingContext& ctx);
void SliceScatterSharding(ShardingContext& ctx);
void SelectScatterSharding(ShardingContext& ctx);
void DiagonalScatterSharding(ShardingContext& ctx);

void CatSharding(ShardingContext& ctx);
void StackSharding(ShardingContext& ctx);
void PadSharding(ShardingContext& ctx);
void RepeatSharding(ShardingContext& ctx);
void RollSharding(ShardingContext& ctx);
void FlipSharding(ShardingContext& ctx);
void TriangleSharding(ShardingContext& ctx);

}  // namespace gt::rules
