#include "gt/exec/device_graph.h"

#include "gt/torch_bridge/cuda_library.h"

namespace gt {

std::unique_ptr<DeviceGraph> MakeDeviceGraph() {
  using Maker = DeviceGraph* (*)();
  static const auto maker = reinterpret_cast<Maker>(FindInCudaLibrary("gt_make_device_graph"));
  return std::unique_ptr<DeviceGraph>(maker == nullptr ? nullptr : maker());
}

}  // namespace gt
