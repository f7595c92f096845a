#include "gt/placement/hand_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gt::placement {

namespace {

HandLayout WithFsdp(const char* name, const DeviceMesh& mesh, AxisUse use) {
  return {fmt::format("FSDP {} x {} {}", mesh.size(0), name, mesh.size(1)),
          mesh,
          {AxisUse::kShard, use}};
}

}  // namespace

std::vector<HandLayout> HandLayouts(const LayoutRequest& request) {
  const auto& [ranks, batch, gpus_per_node, experts, meshes] = request;
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
      layouts.push_back(WithFsdp("EP", DeviceMesh({ranks / size, size}), AxisUse::kExperts));
    }
  }
  for (int64_t tensor = 2; tensor <= std::min(ranks, gpus_per_node); tensor *= 2) {
    const int64_t data = ranks / tensor;
    if (ranks % tensor != 0 || batch % data != 0) continue;
    if (data == 1) {
      layouts.push_back({fmt::format("TP {}", tensor), DeviceMesh({tensor}), {AxisUse::kModel}});
    } else {
      layouts.push_back(WithFsdp("TP", DeviceMesh({data, tensor}), AxisUse::kModel));
    }
  }
  const auto add = [&](HandLayout layout) {
    const bool known = std::ranges::any_of(
        layouts, [&](const HandLayout& other) { return other.name == layout.name; });
    if (!known) layouts.push_back(std::move(layout));
  };
  for (const DeviceMesh& mesh : meshes) {
    if (mesh.axes() != 2) continue;
    if (experts && batch % ranks == 0) add(WithFsdp("EP", mesh, AxisUse::kExperts));
    if (mesh.size(1) <= gpus_per_node && batch % mesh.size(0) == 0) {
      add(WithFsdp("TP", mesh, AxisUse::kModel));
    }
  }
  return layouts;
}

}  // namespace gt::placement
