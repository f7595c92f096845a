#include "gt/fusion/kernel_template.h"

#include "gt/fusion/element_code.h"

namespace gt::fusion {
namespace {

constexpr const char* kHelpers = R"(
__device__ __forceinline__ float Float(float x) { return x; }
template <typename T> __device__ __forceinline__ T To(float x);
template <> __device__ __forceinline__ Bf16 To<Bf16>(float x) { return ToBf16(x); }
template <> __device__ __forceinline__ Half To<Half>(float x) { return ToHalf(x); }
template <> __device__ __forceinline__ float To<float>(float x) { return x; }

__device__ __forceinline__ float WarpSum(float x) {
  for (int d = 16; d > 0; d /= 2) x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}
// Every thread of the block gets it. `shared` has a number for each warp.
template <int THREADS>
__device__ __forceinline__ float BlockSum(float x, float* shared) {
  x = WarpSum(x);
  if (THREADS == 32) return x;
  __syncthreads();  // nobody reads the last sum any more
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = shared[0];
  for (int w = 1; w < THREADS / 32; ++w) sum = __fadd_rn(sum, shared[w]);
  return sum;
}
)";

}  // namespace

RowKernel FilledKernel(std::string name, std::string text,
                       std::initializer_list<std::pair<const char*, std::string>> values) {
  for (const auto& [variable, value] : values) {
    for (size_t at = text.find(variable); at != std::string::npos; at = text.find(variable, at)) {
      text.replace(at, std::string_view(variable).size(), value);
    }
  }
  return {std::move(name), kHelpers + text};
}

std::string TypeText(DType dtype) { return std::string(StorageType(dtype)); }
std::string NumberText(int64_t number) { return std::to_string(number); }
std::string BoolText(bool value) { return value ? "true" : "false"; }

}  // namespace gt::fusion
