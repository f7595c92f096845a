// A parameter that ranks share. It is split first among tensor- or expert-parallel ranks, each of
// which computes with its own block; the block is then sharded over the ranks that compute with
// the same one, each storing a stretch of its rows (FSDP). Before use the block is gathered in the
// dtype of the computation; its gradient is summed in float32 and sharded the same way, and added
// up over replicas.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "gt/dist/group.h"
#include "gt/nn/module.h"
#include "gt/storage/tensor_box.h"

namespace gt {

// One of `parts` along a dimension.
struct Slice {
  int64_t dim = 0;
  int64_t parts = 1;
  int64_t index = 0;
};

struct ParameterSharding {
  Slice split;  // in equal parts: the block this rank computes with
  Slice shard;  // of the block; parts are as equal as whole rows allow, and the last may be empty
  const Group* shard_group = nullptr;    // null: the block is stored whole
  const Group* replica_group = nullptr;  // null: there are no replicas
  at::ScalarType compute = at::kFloat;

  std::vector<int64_t> BlockSizes(const std::vector<int64_t>& whole) const;
  // What this rank stores of the whole parameter.
  TensorBox Box(const std::vector<int64_t>& whole) const;
};

// The preparation of a parameter that is shared like that (nn/module.h).
nn::Preparation Prepare(const ParameterSharding& share, const std::vector<int64_t>& whole);

}  // namespace gt
