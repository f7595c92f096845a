#include "gt/sim/communicators.h"

#include <algorithm>
#include <map>
#include <string>
#include <variant>

#include "gt/ir/checked_math.h"

namespace gt {

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
    const Collective kind = node->op().collective;
    if (kind == Collective::kNone || kind == Collective::kWait) continue;
    int64_t& known = peers[std::get<std::string>(node->arg(node->op().group_arg))];
    if (kind != Collective::kAllToAll) continue;
    const auto ranks = static_cast<int64_t>(std::get<Shape>(node->arg(1)).size());
    known = std::max(known, std::min(ranks, memory.gpus_per_node) - 1);
  }
  int64_t bytes = 0;
  for (const auto& [group, count] : peers) {
    bytes = CheckedAdd(
        bytes, CheckedAdd(memory.bytes_per_group, CheckedMultiply(count, memory.bytes_per_peer)));
  }
  return bytes;
}

}  // namespace gt
