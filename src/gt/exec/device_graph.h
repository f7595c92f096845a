// Kernels recorded once and replayed as one launch: CUDA graphs. What needs CUDA's symbols at link time
// lives in a library of its own (src/gt/cuda) that is loaded when there is a GPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/TensorOptions.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace gt {

class DeviceGraph {
 public:
  // Launches kernels; returns the tensors that others read later.
  using Body = std::function<std::vector<at::Tensor>()>;

  virtual ~DeviceGraph() = default;
  // Records what the body launches, without running it: what it returns has no values yet. It must
  // not wait for the device nor copy to the host. When it throws, nothing is recorded and the graph is
  // of no use.
  virtual void Capture(const Body& body) = 0;
  // Runs what was recorded, on the current stream: it reads and writes the same addresses.
  virtual void Replay() = 0;
};

// Graphs of one step, which share memory: what a recording has freed, a later one takes. So they must be
// replayed in the order in which they were recorded.
class DeviceGraphs {
 public:
  virtual ~DeviceGraphs() = default;
  virtual std::unique_ptr<DeviceGraph> Make() = 0;
  // Takes so much of the device's memory in one piece for what is recorded later. Where there is no such
  // piece, recordings take many.
  virtual void Reserve(int64_t bytes) = 0;
  // A tensor in the graphs' memory.
  virtual at::Tensor Empty(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                           const at::TensorOptions& options) = 0;
  virtual c10::Device device() const = 0;
  // What the graphs hold of the device's memory, from the first recording on.
  virtual int64_t bytes() const = 0;
};

// Null where the library is missing; the reason is logged. Random numbers that recordings draw are those of
// this thread's generator. Memory that ordinary runs have left in the allocator's cache is given back to the
// device, since recordings cannot use it.
std::unique_ptr<DeviceGraphs> MakeDeviceGraphs(c10::Device device);

}  // namespace gt
