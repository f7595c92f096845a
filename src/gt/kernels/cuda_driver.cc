#include "gt/kernels/cuda_driver.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <array>
#include <atomic>

namespace gt {

namespace {

template <typename F>
bool Find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

const CudaDriver* LoadDriver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  CudaDriver::Functions functions;
  const bool complete = Find(library, "cuDeviceGet", functions.device_get) &&
                        Find(library, "cuDeviceGetAttribute", functions.attribute) &&
                        Find(library, "cuDeviceGetName", functions.device_name) &&
                        Find(library, "cuModuleLoadData", functions.module_load) &&
                        Find(library, "cuModuleGetFunction", functions.module_function) &&
                        Find(library, "cuLaunchKernel", functions.launch) &&
                        Find(library, "cuGetErrorString", functions.error_string);
  return complete ? new CudaDriver(functions) : nullptr;
}

std::atomic<const CudaDriver*> stand_in = nullptr;

}  // namespace

const CudaDriver* CudaDriver::Get() {
  if (const CudaDriver* other = stand_in.load()) return other;
  static const CudaDriver* const driver = LoadDriver();  // stays: kernels may outlive statics
  return driver;
}

StandInDriver::StandInDriver(const CudaDriver::Functions& functions) : driver_(functions) {
  stand_in = &driver_;
}
StandInDriver::~StandInDriver() { stand_in = nullptr; }

int CudaDriver::Architecture(int device) const {
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  int handle = 0, major = 0, minor = 0;
  functions_.device_get(&handle, device);
  functions_.attribute(&major, kMajor, handle);
  functions_.attribute(&minor, kMinor, handle);
  return 10 * major + minor;
}

std::string CudaDriver::NameOf(int device) const {
  std::array<char, 256> name = {};
  int handle = 0;
  functions_.device_get(&handle, device);
  functions_.device_name(name.data(), static_cast<int>(name.size()) - 1, handle);
  return name.data();
}

void* CudaDriver::Load(const std::string& cubin, const std::string& name, std::string& why) const {
  void *module = nullptr, *function = nullptr;
  int code = functions_.module_load(&module, cubin.data());
  if (code == 0) code = functions_.module_function(&function, module, name.c_str());
  if (code == 0) return function;
  why = "the driver does not load it: " + ErrorText(code);
  return nullptr;
}

void CudaDriver::Launch(void* function, uint64_t blocks, unsigned threads, void* stream,
                        void** arguments) const {
  const int code = functions_.launch(function, static_cast<unsigned>(blocks), 1, 1, threads, 1, 1,
                                     0, stream, arguments, nullptr);
  TORCH_CHECK(code == 0, "a generated kernel cannot be launched: ", ErrorText(code));
}

std::string CudaDriver::ErrorText(int code) const {
  const char* text = nullptr;
  functions_.error_string(code, &text);
  return text == nullptr ? std::to_string(code) : text;
}

}  // namespace gt
