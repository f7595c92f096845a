#include "gt/dist/multiprocessor_claim.h"

#include <array>

#include "gt/base/logging.h"
#include "gt/dist/cuda_driver.h"

namespace gt {
namespace {

// PTX instead of CUDA C++, because gt is built without nvcc. The driver compiles it for its device,
// which may be any from Volta (sm_70, the first with nanosleep) on.
constexpr const char* kKernelName = "gt_claim_multiprocessors";
constexpr const char* kKernel = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry gt_claim_multiprocessors(
    .param .u64 nanoseconds)
{
  .reg .pred %over;
  .reg .u64  %wanted, %start, %passed;

  ld.param.u64 %wanted, [nanoseconds];
  mov.u64 %start, %globaltimer;

sleep:
  nanosleep.u32 1000;
  mov.u64 %passed, %globaltimer;
  sub.u64 %passed, %passed, %start;
  setp.ge.u64 %over, %passed, %wanted;
  @!%over bra sleep;
  ret;
}
)";

// Values of cuda.h, which is not there in every build.
constexpr int kMultiprocessorCount = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr int kNotFound = 500;            // CUDA_ERROR_NOT_FOUND
constexpr unsigned kThreads = 512;        // of a block

template <typename Function, typename... Args>
int Call(const char* name, Args... args) {
  void* function = FindInDriver(name);
  return function == nullptr ? kNotFound : reinterpret_cast<Function>(function)(args...);
}

struct LoadedKernel {
  void* kernel = nullptr;
  int multiprocessors = 0;
};

// The function of the driver that failed, or null.
const char* TryLoad(LoadedKernel* loaded, int* status) {
  using GetDevice = int (*)(int*);
  using GetAttribute = int (*)(int*, int, int);
  using LoadData = int (*)(void**, const void*);
  using GetFunction = int (*)(void**, void*, const char*);
  const auto failed = [status](int result) { return (*status = result) != 0; };

  int device = 0;
  if (failed(Call<GetDevice>("cuCtxGetDevice", &device))) return "cuCtxGetDevice";
  if (failed(Call<GetAttribute>("cuDeviceGetAttribute", &loaded->multiprocessors,
                                kMultiprocessorCount, device))) {
    return "cuDeviceGetAttribute";
  }
  void* module = nullptr;
  if (failed(Call<LoadData>("cuModuleLoadData", &module, static_cast<const void*>(kKernel)))) {
    return "cuModuleLoadData";
  }
  if (failed(Call<GetFunction>("cuModuleGetFunction", &loaded->kernel, module, kKernelName))) {
    return "cuModuleGetFunction";
  }
  return FindInDriver("cuLaunchKernel") == nullptr ? "cuLaunchKernel" : nullptr;
}

}  // namespace

std::optional<MultiprocessorClaim> MultiprocessorClaim::Load() {
  LoadedKernel loaded;
  int status = 0;
  if (const char* function = TryLoad(&loaded, &status)) {
    log::Warn(
        "emulated collectives take no multiprocessors from compute: {} of the CUDA driver failed "
        "({}), so the kernel that would occupy them cannot be loaded",
        function, status);
    return std::nullopt;
  }
  return MultiprocessorClaim(loaded.kernel, loaded.multiprocessors);
}

void MultiprocessorClaim::Launch(void* stream, int count, std::uint64_t nanoseconds) const {
  using LaunchKernel =
      int (*)(void* kernel, unsigned, unsigned, unsigned,  // blocks
              unsigned, unsigned, unsigned,                // threads of a block
              unsigned shared_bytes, void* stream, void** parameters, void** extra);
  static const auto launch = reinterpret_cast<LaunchKernel>(RequireInDriver("cuLaunchKernel"));
  std::array<void*, 1> parameters = {&nanoseconds};
  RequireDriverSuccess(launch(kernel_, static_cast<unsigned>(count), 1, 1, kThreads, 1, 1,
                              /*shared_bytes=*/0, stream, parameters.data(), nullptr),
                       "cuLaunchKernel");
}

}  // namespace gt
