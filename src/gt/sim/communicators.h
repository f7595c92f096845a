// What communicators hold of the memory: buffers of nccl and gloo, which no graph mentions, but which
// must fit beside the step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "gt/ir/graph.h"

namespace gt {

struct CommunicatorMemory {
  // Of each process group that has a collective.
  int64_t bytes_per_group = 0;
  // Of a group that exchanges (all-to-all) in addition, for each other rank of it on the same node.
  int64_t bytes_per_peer = 0;
  int64_t gpus_per_node = 8;
  // Other ranks of a group that are on the same node, by the name of the group or of the one that it was made
  // from ("mesh_0" of "mesh_0.gathers"). Of others as many as the node has room for.
  std::map<std::string, int64_t, std::less<>> peers_on_node = {};
};

// Of nccl between GPUs of a node with NVSwitch.
CommunicatorMemory NcclMemory();

// Of the groups that the graph uses: one that was made and is never used has no communicator.
int64_t CommunicatorBytes(const Graph& graph, const CommunicatorMemory& memory);

// Of gloo, which the ranks of a CPU use.
struct GlooMemory {
  // Ranks of each group. One that is not here counts as a large one.
  std::map<std::string, int64_t> group_sizes = {};
};

// What gloo copies gathered tensors from: a buffer for the largest of each group, since a group's
// collectives run one after another. Libtorch allocates it on a thread of its own.
int64_t GatherBufferBytes(const Graph& graph, const GlooMemory& memory, SymbolValues hints);

// What a sum in the order of the ranks (dist/ordered_gloo.h) takes besides its operands and results,
// from its call to its wait. 0 for other nodes, and for sums of two ranks or of integers.
int64_t OrderedSumBytes(const Node& node, const GlooMemory& memory, SymbolValues hints);

}  // namespace gt
