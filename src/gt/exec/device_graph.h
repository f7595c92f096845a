// Kernels recorded once and replayed as one launch: a CUDA graph. What needs CUDA's symbols at link
// time lives in a library of its own (src/gt/cuda) that is loaded when there is a GPU.
#pragma once

#include <functional>
#include <memory>

namespace gt {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Records what `body` launches, without running it. It must not wait for the device nor copy to
  // the host. Memory it allocates belongs to the graph.
  virtual void Capture(const std::function<void()>& body) = 0;
  virtual void Replay() = 0;
};

// Null where the library is missing; the reason is logged.
std::unique_ptr<DeviceGraph> MakeDeviceGraph();

}  // namespace gt
