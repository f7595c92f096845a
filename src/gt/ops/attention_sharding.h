// Sharding rules of attention: rows of the batch and heads are independent of each other. Grouped
// queries are cut with the keys they share, so that ranks must divide both numbers of heads.
#pragma once

#include <initializer_list>

#include "gt/ir/sharding.h"

namespace gt::rules {

// Schema positions of what an attention kernel takes: tensors that begin with [batch, heads], and a
// mask or bias that broadcasts to [batch, heads, queries, keys] (-1: none).
struct AttentionArgs {
  std::initializer_list<int> tensors;
  int bias;
};
void AddAttentionRows(ShardingContext& ctx, const AttentionArgs& args, bool backward);

// (query, key, value, captures, score_mod, mask_mod, ...). A function that uses the number of a
// head or of a row of the batch means the one in the whole. It may be cut if all it does with the
// number is to look up captured tensors, which are then cut along the dimension it looks in.
void FlexSharding(ShardingContext& ctx);
// (grad_out, query, key, value, out, logsumexp, captures, score_mod, score_mod_backward, mask_mod)
void FlexBackwardSharding(ShardingContext& ctx);

}  // namespace gt::rules
