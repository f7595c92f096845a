// DeviceGraph with libtorch's CUDAGraph. Built as a library of its own: see exec/device_graph.h.
#include "gt/exec/device_graph.h"

// libtorch's headers include cuda_runtime.h, of which they need what is in cuda_runtime_api.h alone;
// the rest is for device code and includes headers that only a CUDA toolkit has.
#include <cuda_runtime_api.h>
#define __CUDA_RUNTIME_H__

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace gt {
namespace {

class CudaGraph : public DeviceGraph {
 public:
  void Capture(const std::function<void()>& body) override {
    // Recording is not possible on the default stream.
    c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    graph_.capture_begin();
    try {
      body();
    } catch (...) {
      graph_.capture_end();
      throw;
    }
    graph_.capture_end();
  }

  void Replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace
}  // namespace gt

extern "C" gt::DeviceGraph* gt_make_device_graph() { return new gt::CudaGraph(); }
