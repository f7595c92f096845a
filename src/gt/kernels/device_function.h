// Kernels that are written by hand, as CUDA C++ text: compiled by NVRTC when a GPU first needs one, and kept in
// the store of compiled kernels like the generated ones (fused_kernels.h).
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "gt/fusion/kernel_source.h"

namespace gt {

// Where kernels of this process are kept from now on; an empty path: nowhere.
void UseKernelFolder(std::filesystem::path folder);

class DeviceFunction {
 public:
  // `text` defines `name` as an extern "C" __global__ function. It may use what KernelPrelude
  // (fusion/element_code.h) defines.
  DeviceFunction(std::string name, std::string_view text);

  // Whether it can run on that GPU; a warning says once why it cannot.
  bool IsAvailable(c10::Device gpu);

  // On the current stream of a GPU on which it is available, in one-dimensional blocks.
  void Launch(c10::Device gpu, int64_t blocks, int threads, void** arguments);

  const fusion::KernelSource& source() const { return source_; }

 private:
  void* Function(c10::Device gpu);

  const fusion::KernelSource source_;
  std::mutex mutex_;
  std::map<int, void*> functions_;  // by device; null: not available
};

}  // namespace gt
