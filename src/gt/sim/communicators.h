// What communicators hold of a GPU's memory: buffers of nccl's own, which no allocator of libtorch
// knows and no graph mentions, but which must fit beside the step.
#pragma once

#include <cstdint>

#include "gt/ir/graph.h"

namespace gt {

struct CommunicatorMemory {
  // Of each process group that has a collective.
  int64_t bytes_per_group = 0;
  // Of a group that exchanges (all-to-all) in addition, for each other rank of it on the same node.
  int64_t bytes_per_peer = 0;
  int64_t gpus_per_node = 8;
};

// Of nccl between GPUs of a node with NVSwitch.
CommunicatorMemory NcclMemory();

// Of the groups that the graph uses: one that was made and is never used has no communicator. Ranks of
// a group that fit on a node are taken to be there.
int64_t CommunicatorBytes(const Graph& graph, const CommunicatorMemory& memory);

}  // namespace gt
