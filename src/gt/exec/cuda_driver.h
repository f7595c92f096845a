// The few functions of NVIDIA's driver that run generated kernels, loaded when there is a GPU. The context
// is libtorch's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gt {

class CudaDriver {
 public:
  // Null where there is no driver.
  static const CudaDriver* Get();

  // 90 for a device of compute capability 9.0.
  int Architecture(int device) const;
  std::string NameOf(int device) const;

  // A function of a binary, for the device that is current and has been used before: libtorch makes its
  // context then. It stays loaded. Null if the driver refuses it, with the reason.
  void* Load(const std::string& cubin, const std::string& name, std::string& why) const;

  // In one-dimensional blocks. Throws c10::Error if the driver refuses.
  void Launch(void* function, uint64_t blocks, unsigned threads, void* stream,
              void** arguments) const;

 private:
  friend struct CudaDriverLoader;
  struct Functions;
  std::string ErrorText(int code) const;
  const Functions* functions_ = nullptr;
};

}  // namespace gt
