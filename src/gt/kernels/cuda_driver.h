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
  // As cuda.h declares them; results are 0 for success.
  struct Functions {
    int (*device_get)(int*, int) = nullptr;
    int (*attribute)(int*, int, int) = nullptr;
    int (*device_name)(char*, int, int) = nullptr;
    int (*module_load)(void**, const void*) = nullptr;
    int (*module_function)(void**, void*, const char*) = nullptr;
    int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void*, void**, void**) = nullptr;
    int (*error_string)(int, const char**) = nullptr;
  };

  explicit CudaDriver(const Functions& functions) : functions_(functions) {}

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

  const Functions& functions() const { return functions_; }

 private:
  std::string ErrorText(int code) const;
  const Functions functions_;
};

// While there is one, CudaDriver::Get returns it: for tests of what a driver may refuse.
class StandInDriver {
 public:
  explicit StandInDriver(const CudaDriver::Functions& functions);
  ~StandInDriver();
  StandInDriver(const StandInDriver&) = delete;
  StandInDriver& operator=(const StandInDriver&) = delete;

 private:
  const CudaDriver driver_;
};

}  // namespace gt
