#include "gt/exec/device_graph.h"

#include "gt/torch_bridge/cuda_library.h"
#include "gt/torch_bridge/generator.h"

namespace gt {

std::unique_ptr<DeviceGraphs> MakeDeviceGraphs(c10::Device device) {
  using Maker = DeviceGraphs* (*)(int device, const at::Generator* generator);
  static const auto maker = reinterpret_cast<Maker>(FindInCudaLibrary("gt_make_device_graphs"));
  if (maker == nullptr) return nullptr;
  const std::optional<at::Generator> own = CurrentGenerator();
  const bool draws_here = own && own->device().is_cuda();
  return std::unique_ptr<DeviceGraphs>(
      maker(device.has_index() ? device.index() : 0, draws_here ? &*own : nullptr));
}

}  // namespace gt
