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
    .param .u64 begun_address,
    .param .u64 done_address,
    .param .u64 gave_up_address,
    .param .u32 claim_number,
    .param .u64 limit_ns)
{
  .reg .pred %arrived, %late;
  .reg .u32  %number, %seen;
  .reg .u64  %begun, %done, %gave_up, %limit, %start, %passed;

  ld.param.u64 %begun,   [begun_address];
  ld.param.u64 %done,    [done_address];
  ld.param.u64 %gave_up, [gave_up_address];
  ld.param.u32 %number,  [claim_number];
  ld.param.u64 %limit,   [limit_ns];

  mov.u64 %start, %globaltimer;
  // Every block writes it: the first one to run says that the claim has begun, and the next claim of
  // the stream, with a larger number, does not run before the last block has ended.
  st.volatile.global.u32 [%begun], %number;

poll:
  // Nothing is read that this number would announce, so neither needs a fence. One that is
  // system-wide, many times a microsecond, would slow down the memory of the whole device.
  ld.volatile.global.u32 %seen, [%done];
  setp.ge.u32 %arrived, %seen, %number;
  @%arrived bra finish;

  mov.u64 %passed, %globaltimer;
  sub.u64 %passed, %passed, %start;
  setp.gt.u64 %late, %passed, %limit;
  @%late bra give_up;

  // Leaves the bus and the issue slots alone between two looks.
  nanosleep.u32 2000;
  bra poll;

give_up:
  st.volatile.global.u32 [%gave_up], %number;
finish:
  ret;
}
)";

// Values of cuda.h, which is not there in every build.
constexpr int kMultiprocessorCount = 16;      // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr int kMaxSharedMemoryPerBlock = 97;  // ..._MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
constexpr int kMaxDynamicSharedMemory = 8;    // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kPreferredSharedMemory = 9;     // ..._PREFERRED_SHARED_MEMORY_CARVEOUT, in percent
constexpr int kNotFound = 500;                // CUDA_ERROR_NOT_FOUND

template <typename Function, typename... Args>
int Call(const char* name, Args... args) {
  void* function = FindInDriver(name);
  return function == nullptr ? kNotFound : reinterpret_cast<Function>(function)(args...);
}

struct LoadedKernel {
  void* kernel = nullptr;
  int multiprocessors = 0;
  int shared_bytes = 0;
};

// The function of the driver that failed, or null.
const char* TryLoad(LoadedKernel* loaded, int* status) {
  using GetDevice = int (*)(int*);
  using GetAttribute = int (*)(int*, int, int);
  using LoadData = int (*)(void**, const void*);
  using GetFunction = int (*)(void**, void*, const char*);
  using SetAttribute = int (*)(void*, int, int);
  const auto failed = [status](int result) { return (*status = result) != 0; };

  int device = 0;
  if (failed(Call<GetDevice>("cuCtxGetDevice", &device))) return "cuCtxGetDevice";
  const auto attribute = [&](int which, int* value) {
    return Call<GetAttribute>("cuDeviceGetAttribute", value, which, device);
  };
  if (failed(attribute(kMultiprocessorCount, &loaded->multiprocessors)) ||
      failed(attribute(kMaxSharedMemoryPerBlock, &loaded->shared_bytes))) {
    return "cuDeviceGetAttribute";
  }
  void* module = nullptr;
  if (failed(Call<LoadData>("cuModuleLoadData", &module, static_cast<const void*>(kKernel)))) {
    return "cuModuleLoadData";
  }
  if (failed(Call<GetFunction>("cuModuleGetFunction", &loaded->kernel, module, kKernelName))) {
    return "cuModuleGetFunction";
  }
  constexpr int kAll = 100;
  if (failed(Call<SetAttribute>("cuFuncSetAttribute", loaded->kernel, kMaxDynamicSharedMemory,
                                loaded->shared_bytes)) ||
      failed(
          Call<SetAttribute>("cuFuncSetAttribute", loaded->kernel, kPreferredSharedMemory, kAll))) {
    return "cuFuncSetAttribute";
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
  return MultiprocessorClaim(loaded.kernel, loaded.multiprocessors, loaded.shared_bytes);
}

void MultiprocessorClaim::Launch(void* stream, int count, const Numbers& numbers,
                                 std::uint32_t number, std::uint64_t limit_ns) const {
  using LaunchKernel =
      int (*)(void* kernel, unsigned, unsigned, unsigned,  // blocks
              unsigned, unsigned, unsigned,                // threads of a block
              unsigned shared_bytes, void* stream, void** parameters, void** extra);
  static const auto launch = reinterpret_cast<LaunchKernel>(RequireInDriver("cuLaunchKernel"));
  const auto address = [](const std::uint32_t* at) { return reinterpret_cast<std::uintptr_t>(at); };
  std::uint64_t begun = address(numbers.begun);
  std::uint64_t done = address(numbers.done);
  std::uint64_t gave_up = address(numbers.gave_up);
  std::array<void*, 5> parameters = {&begun, &done, &gave_up, &number, &limit_ns};
  RequireDriverSuccess(
      launch(kernel_, static_cast<unsigned>(count), 1, 1, 1, 1, 1,
             static_cast<unsigned>(shared_bytes_), stream, parameters.data(), nullptr),
      "cuLaunchKernel");
}

}  // namespace gt
