// Kernels that are written by hand, as the operators that launch them see them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <mutex>

#include "gt/fusion/kernel_template.h"
#include "gt/kernels/device_function.h"

namespace gt {

// Made once for each key, and kept: what a key does not say must not change the text.
template <typename Key>
class KernelTable {
 public:
  // Null: there is none on that GPU, which was said.
  template <typename Make>
  DeviceFunction* Find(const Key& key, c10::Device device, const Make& make) {
    DeviceFunction* function = nullptr;
    {
      const std::lock_guard lock(mutex_);
      auto found = functions_.find(key);
      if (found == functions_.end()) {
        const fusion::RowKernel kernel = make();
        found = functions_.try_emplace(key, kernel.name, kernel.text).first;
      }
      function = &found->second;
    }
    return function->IsAvailable(device) ? function : nullptr;
  }

 private:
  std::mutex mutex_;
  std::map<Key, DeviceFunction> functions_;
};

// Pass long long where a kernel does.
template <typename... Args>
void LaunchKernel(DeviceFunction& function, int64_t blocks, int threads, c10::Device device,
                  Args... arguments) {
  if (blocks == 0) return;
  std::array<void*, sizeof...(Args)> pointers = {static_cast<void*>(&arguments)...};
  function.Launch(device, blocks, threads, pointers.data());
}

inline const void* InPointer(const at::Tensor& tensor) { return tensor.const_data_ptr(); }
inline void* OutPointer(const at::Tensor& tensor) { return tensor.mutable_data_ptr(); }

// A tensor as a matrix: all dimensions but the last are one. Elements of a row are neighbours.
struct Rows {
  at::Tensor tensor;
  int64_t stride = 0;
};
Rows RowsOf(const at::Tensor& x);

// As kernels lay their results out, strides of dimensions of size one included.
at::Tensor RowMajor(const at::Tensor& tensor);

}  // namespace gt
