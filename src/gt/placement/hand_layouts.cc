#include "gt/placement/hand_layouts.h"

#include <fmt/format.h>

#include <algorithm>

namespace gt::placement {

std::vector<HandLayout> HandLayouts(const LayoutRequest& request) {
  const auto [ranks, batch, gpus_per_node, experts] = request;
  std::vector<HandLayout> layouts;
  if (ranks == 1) return layouts;
  const int64_t nodes = ranks / std::min(ranks, gpus_per_node);
  const int64_t per_node = ranks / nodes;
  if (batch % ranks == 0) {
    layouts.push_back({fmt::format("DDP {}", ranks), DeviceMesh({ranks}), {AxisUse::kReplicate}});
    layouts.push_back({fmt::format("FSDP {}", ranks), DeviceMesh({ranks}), {AxisUse::kShard}});
    if (nodes > 1 && per_node > 1 && nodes * per_node == ranks) {
      layouts.push_back({fmt::format("HSDP {} x {}", nodes, per_node),
                         DeviceMesh({nodes, per_node}),
                         {AxisUse::kReplicate, AxisUse::kShard}});
    }
  }
  for (int64_t size = 2; experts && size <= ranks && batch % ranks == 0; size *= 2) {
    if (ranks % size != 0 || (size > gpus_per_node && size != ranks)) continue;
    if (size == ranks) {
      layouts.push_back({fmt::format("EP {}", size), DeviceMesh({size}), {AxisUse::kExperts}});
    } else {
      layouts.push_back({fmt::format("FSDP {} x EP {}", ranks / size, size),
                         DeviceMesh({ranks / size, size}),
                         {AxisUse::kShard, AxisUse::kExperts}});
    }
  }
  for (int64_t tensor = 2; tensor <= std::min(ranks, gpus_per_node); tensor *= 2) {
    const int64_t data = ranks / tensor;
    if (ranks % tensor != 0 || batch % data != 0) continue;
    if (data == 1) {
      layouts.push_back({fmt::format("TP {}", tensor), DeviceMesh({tensor}), {AxisUse::kModel}});
    } else {
      layouts.push_back({fmt::format("FSDP {} x TP {}", data, tensor),
                         DeviceMesh({data, tensor}),
                         {AxisUse::kShard, AxisUse::kModel}});
    }
  }
  return layouts;
}

}  // namespace gt::placement
