// Sharding rules of operators that look elements up or write them by index tensors.
#pragma once

#include "gt/ir/sharding.h"

namespace gt::rules {

void EmbeddingSharding(ShardingContext& ctx);
void EmbeddingBackwardSharding(ShardingContext& ctx);

void IndexSharding(ShardingContext& ctx);
void IndexPutSharding(ShardingContext& ctx);
void IndexSelectSharding(ShardingContext& ctx);
void IndexAddSharding(ShardingContext& ctx);
void IndexCopySharding(ShardingContext& ctx);
void IndexFillSharding(ShardingContext& ctx);
void TakeSharding(ShardingContext& ctx);

void GatherSharding(ShardingContext& ctx);
void ScatterSharding(ShardingContext& ctx);
void ScatterValueSharding(ShardingContext& ctx);
void ScatterAddSharding(ShardingContext& ctx);
void ScatterReduceSharding(ShardingContext& ctx);

void HistcSharding(ShardingContext& ctx);
void SearchSortedSharding(ShardingContext& ctx);
void BucketizeSharding(ShardingContext& ctx);

}  // namespace gt::rules
