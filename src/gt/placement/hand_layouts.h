// Layouts that people write by hand, as restrictions of the search: what each axis of a mesh is for. The
// best placement under the restriction is at least as good as the layout itself.
#pragma once

#include <string>
#include <vector>

#include "gt/placement/place_problem.h"

namespace gt::placement {

struct HandLayout {
  std::string name;  // "FSDP 8 x TP 8"
  DeviceMesh mesh;
  std::vector<AxisUse> axes;
};

// What the layouts are for.
struct LayoutRequest {
  int64_t ranks = 1;
  int64_t batch = 1;  // sequences of all ranks together
  int64_t gpus_per_node = 8;
  bool experts = false;                 // the model has some
  std::vector<DeviceMesh> meshes = {};  // those that the job may use
};

// Data parallelism alone, FSDP, HSDP across nodes, experts or tensor parallelism of each size within a
// node times FSDP, as far as the batch can be shared out like that; on the meshes of two axes that are
// named also experts across nodes, and sizes that are no power of two.
std::vector<HandLayout> HandLayouts(const LayoutRequest& request);

}  // namespace gt::placement
