// Collectives as functions of tensors, seen by capture as libtorch's functional collectives, and
// differentiable where a model needs it. Each waits for its result: where the wait is placed is
// decided later, on the graph. A null group is one rank alone: then nothing happens.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <vector>

#include "gt/dist/group.h"

namespace gt {

// Not differentiable; along dimension 0.
at::Tensor AllGather(const at::Tensor& x, const Group* group);
at::Tensor ReduceScatter(const at::Tensor& x, const Group* group);
at::Tensor AllReduceSum(const at::Tensor& x, const Group* group);
at::Tensor AllReduceMax(const at::Tensor& x, const Group* group);
// Rank r gets input_splits[r] rows from here, and sends output_splits[r].
at::Tensor AllToAll(const at::Tensor& x, const std::vector<c10::SymInt>& output_splits,
                    const std::vector<c10::SymInt>& input_splits, const Group* group);

// Differentiable. Shards along `dim` from all ranks, in rank order; gradients are reduce-scattered.
at::Tensor GatherAlong(const at::Tensor& x, int64_t dim, const Group* group);
// The sum over all ranks, of which each keeps its shard along `dim`; gradients are gathered.
at::Tensor ReduceScatterAlong(const at::Tensor& x, int64_t dim, const Group* group);
// Gradients go back the way the rows came.
at::Tensor ExchangeRows(const at::Tensor& x, const std::vector<c10::SymInt>& output_splits,
                        const std::vector<c10::SymInt>& input_splits, const Group* group);

}  // namespace gt
