#include "gt/dist/cuda_driver.h"

#include <dlfcn.h>

#include <algorithm>

#include "gt/base/error.h"

namespace gt {

void* FindInDriver(const char* name) { return dlsym(RTLD_DEFAULT, name); }

void* RequireInDriver(const char* name) {
  void* found = FindInDriver(name);
  if (found == nullptr) {
    Fail(ErrorCode::kNoBackend,
         "--comm.backend emulated on a GPU needs {} of the driver, which is not there", name);
  }
  return found;
}

void RequireDriverSuccess(int status, const char* function) {
  if (status != 0) {
    Fail(ErrorCode::kCollectiveFailed, "{} of the CUDA driver failed: {}", function, status);
  }
}

std::uint32_t* AllocateSharedNumbers(std::size_t count) {
  using HostAlloc = int (*)(void**, std::size_t, unsigned);
  constexpr unsigned kPortableAndMapped = 3;
  static const auto allocate = reinterpret_cast<HostAlloc>(RequireInDriver("cuMemHostAlloc"));
  void* memory = nullptr;
  RequireDriverSuccess(allocate(&memory, count * sizeof(std::uint32_t), kPortableAndMapped),
                       "cuMemHostAlloc");
  auto* numbers = static_cast<std::uint32_t*>(memory);
  std::fill_n(numbers, count, 0);
  return numbers;
}

}  // namespace gt
