#include "gt/sim/communicators.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "gt/analysis/collectives.h"
#include "gt/ir/checked_math.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

// 0: not known.
int64_t RanksOf(const Node& node, const GlooMemory& memory) {
  const auto found = memory.group_sizes.find(GroupOf(node));
  return found == memory.group_sizes.end() ? 0 : found->second;
}

bool IsOrderedSum(const Node& node, const GlooMemory& memory) {
  const Collective kind = node.op().collective;
  if (kind != Collective::kReduceScatter && kind != Collective::kAllReduce) return false;
  const int64_t ranks = RanksOf(node, memory);
  return (ranks == 0 || ranks > 2) && std::get<std::string>(node.arg(1)) == "sum";
}

}  // namespace

// A communicator took 388 to 390 MiB at its first collective on an H200 (the NCCL of libtorch 2.11, a
// group of one rank; GpuJobs.CommunicatorsTakeMemory_gpu measures it). All-to-all connects every pair of
// ranks in 32 channels, each with 10 MiB where it arrives (the buffers of the three protocols: 4 MiB,
// 4.7 MiB and 0.5 MiB, rounded up) and 2 MiB at either end for flags: 3.28 GB on 8 x H100
// (github.com/NVIDIA/nccl/issues/1685). Between nodes, exchanges share one buffer.
CommunicatorMemory NcclMemory() {
  constexpr int64_t kChannel = int64_t{10 + 2 + 2} << 20;
  return {.bytes_per_group = int64_t{390} << 20, .bytes_per_peer = 32 * kChannel};
}

int64_t CommunicatorBytes(const Graph& graph, const CommunicatorMemory& memory) {
  std::map<std::string, int64_t> peers;  // of each group that is used, with which it exchanges
  for (const Node* node : graph.nodes()) {
    if (!LaunchesCollective(node->op())) continue;
    int64_t& known = peers[GroupOf(*node)];
    if (node->op().collective != Collective::kAllToAll) continue;
    const auto ranks = static_cast<int64_t>(std::get<Shape>(node->arg(1)).size());
    const std::string_view name = GroupOf(*node);
    const auto counted = memory.peers_on_node.find(name.substr(0, name.find('.')));
    known = std::max(known, counted != memory.peers_on_node.end()
                                ? counted->second
                                : std::min(ranks, memory.gpus_per_node) - 1);
  }
  int64_t bytes = 0;
  for (const auto& [group, count] : peers) {
    bytes = CheckedAdd(
        bytes, CheckedAdd(memory.bytes_per_group, CheckedMultiply(count, memory.bytes_per_peer)));
  }
  return bytes;
}

int64_t GatherBufferBytes(const Graph& graph, const GlooMemory& memory, SymbolValues hints) {
  std::map<std::string, int64_t> largest;
  for (const Node* node : graph.nodes()) {
    // An ordered sum of whole tensors ends with a gather of the shards.
    const bool gathers =
        node->op().collective == Collective::kAllGather ||
        (node->op().collective == Collective::kAllReduce && IsOrderedSum(*node, memory));
    if (!gathers) continue;
    int64_t& bytes = largest[GroupOf(*node)];
    for (int32_t i = 0; i < node->result_count(); ++i) {
      bytes = std::max(bytes, StorageBytes(node->result(i)->type(), hints));
    }
  }
  int64_t sum = 0;
  for (const auto& [group, bytes] : largest) sum = CheckedAdd(sum, bytes);
  return sum;
}

// A reduce-scatter receives its shard from all ranks, as many bytes as it was given. An all-reduce
// first copies what it was given, and keeps its shard of the sum.
int64_t OrderedSumBytes(const Node& node, const GlooMemory& memory, SymbolValues hints) {
  if (!IsOrderedSum(node, memory)) return 0;
  int64_t bytes = 0;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    const TensorType& operand = node.operand(i)->type();
    if (!IsFloating(operand.dtype)) return 0;
    bytes = CheckedAdd(bytes, StorageBytes(operand, hints));
  }
  if (node.op().collective == Collective::kReduceScatter) return bytes;
  const int64_t ranks = std::max<int64_t>(RanksOf(node, memory), 3);
  return CheckedAdd(CheckedMultiply(2, bytes), bytes / ranks);
}

}  // namespace gt
