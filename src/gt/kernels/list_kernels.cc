#include "gt/kernels/list_kernels.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "gt/kernels/device_function.h"

namespace gt {
namespace {

constexpr int kThreads = 256;
constexpr int kStretch = 16384;  // elements of one block

// A block's part of a list: elements from number * kStretch of the tensor of a row.
struct Stretch {
  int32_t row, number;
};

struct AdamWPointers {
  void* parameter;
  const void* gradient;
  void *mean, *mean_square;
  const void* step;
  int64_t count;
  float decay, unused;  // no padding, so that rows can be compared as bytes
};

struct SquarePointers {
  const void* elements;
  int64_t count;
};

// ELEMENT, THREADS and STRETCH are defined before it.
constexpr const char* kCommon = R"(
typedef ELEMENT T;
constexpr int kLanes = 16 / sizeof(T);  // loaded and stored as one

struct Stretch {
  int row, number;
};

__device__ __forceinline__ float Float(float x) { return x; }
__device__ __forceinline__ void Set(Bf16& to, float x) { to = ToBf16(x); }
__device__ __forceinline__ void Set(float& to, float x) { to = x; }

__device__ __forceinline__ bool IsAligned(const T* pointer) {
  return (unsigned long long)pointer % 16 == 0;
}
// Elements of a stretch, the last of which may be shorter.
__device__ __forceinline__ int CountFrom(long long first, long long count) {
  return count - first < STRETCH ? count - first : STRETCH;
}
)";

constexpr const char* kAdamW = R"(
struct Row {
  T* parameter;
  const T* gradient;
  T *mean, *mean_square;
  const float* step;
  long long count;
  float decay, unused;
};

extern "C" __global__ void __launch_bounds__(THREADS)
gt_adamw(const Row* rows, const Stretch* stretches, float rate, float beta1, float beta2, float eps,
         float divisor) {
  const Stretch stretch = stretches[blockIdx.x];
  const Row row = rows[stretch.row];
  const float step_size = rate / (1 - powf(beta1, *row.step));
  const float root = sqrtf(1 - powf(beta2, *row.step));

  // Each line rounds where libtorch's kernel does.
  const auto update = [&](T& parameter, T gradient, T& mean, T& mean_square) {
    float p = Float(parameter), g = Float(gradient), m = Float(mean), v = Float(mean_square);
    if (divisor != 1) g /= divisor;
    if (row.decay != 0) p -= rate * row.decay * p;
    m = fmaf(beta1, m, fmaf(-beta1, g, g));
    v = fmaf(beta2, v, fmaf(-beta2, g * g, g * g));
    p -= step_size * m / (sqrtf(v) / root + eps);
    Set(parameter, p);
    Set(mean, m);
    Set(mean_square, v);
  };

  const long long first = (long long)stretch.number * STRETCH;
  const int count = CountFrom(first, row.count);
  T* const p = row.parameter + first;
  const T* const g = row.gradient + first;
  T* const m = row.mean + first;
  T* const v = row.mean_square + first;
  int done = 0;
  if (IsAligned(p) && IsAligned(g) && IsAligned(m) && IsAligned(v)) {
    done = count / kLanes * kLanes;
    for (int i = threadIdx.x * kLanes; i < done; i += THREADS * kLanes) {
      Vec<T, kLanes> ps = Load<kLanes>(p + i), ms = Load<kLanes>(m + i), vs = Load<kLanes>(v + i);
      const Vec<T, kLanes> gs = Load<kLanes>(g + i);
      LANES(kLanes) update(ps[k], gs[k], ms[k], vs[k]);
      Store(p + i, ps);
      Store(m + i, ms);
      Store(v + i, vs);
    }
  }
  for (int i = done + threadIdx.x; i < count; i += THREADS) update(p[i], g[i], m[i], v[i]);
}
)";

// One number for each block; they are added up in their order.
constexpr const char* kSquares = R"(
struct Row {
  const T* elements;
  long long count;
};

extern "C" __global__ void __launch_bounds__(THREADS)
gt_squares(const Row* rows, const Stretch* stretches, float* sums) {
  const Stretch stretch = stretches[blockIdx.x];
  const Row row = rows[stretch.row];
  const long long first = (long long)stretch.number * STRETCH;
  const int count = CountFrom(first, row.count);
  const T* const x = row.elements + first;
  int done = 0;
  float sum = 0;
  if (IsAligned(x)) {
    done = count / kLanes * kLanes;
#pragma unroll 4
    for (int i = threadIdx.x * kLanes; i < done; i += THREADS * kLanes) {
      const Vec<T, kLanes> xs = Load<kLanes>(x + i);
      LANES(kLanes) sum += Float(xs[k]) * Float(xs[k]);
    }
  }
  for (int i = done + threadIdx.x; i < count; i += THREADS) sum += Float(x[i]) * Float(x[i]);
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(0xffffffffu, sum, lane);
  __shared__ float warps[THREADS / 32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = 0;
    for (int warp = 0; warp < THREADS / 32; ++warp) sum += warps[warp];
    sums[blockIdx.x] = sum;
  }
}
)";

enum class Kernel { kAdamW, kSquares };

constexpr std::array kKernels = {Kernel::kAdamW, Kernel::kSquares};
constexpr std::array kDtypes = {at::kFloat, at::kBFloat16};

bool HasCode(at::ScalarType dtype) { return std::ranges::count(kDtypes, dtype) > 0; }

std::string TextOf(Kernel kernel, at::ScalarType dtype) {
  return fmt::format("#define ELEMENT {}\n#define THREADS {}\n#define STRETCH {}\n{}{}",
                     dtype == at::kFloat ? "float" : "Bf16", kThreads, kStretch, kCommon,
                     kernel == Kernel::kAdamW ? kAdamW : kSquares);
}

// Shared by all jobs of the process.
DeviceFunction& FunctionOf(Kernel kernel, at::ScalarType dtype) {
  static const auto* functions = [] {
    auto* made = new std::map<std::pair<Kernel, at::ScalarType>, std::unique_ptr<DeviceFunction>>();
    for (const Kernel one : kKernels) {
      for (const at::ScalarType type : kDtypes) {
        (*made)[{one, type}] = std::make_unique<DeviceFunction>(
            one == Kernel::kAdamW ? "gt_adamw" : "gt_squares", TextOf(one, type));
      }
    }
    return made;
  }();
  return *functions->at({kernel, dtype});
}

bool CanBeRead(const at::Tensor& tensor, c10::Device gpu) {
  return tensor.device() == gpu && gpu.is_cuda() && HasCode(tensor.scalar_type()) &&
         tensor.is_non_overlapping_and_dense();
}

bool CanBeUpdated(const AdamWRow& row, c10::Device gpu) {
  for (const at::Tensor* tensor : {&row.gradient, &row.mean, &row.mean_square}) {
    if (tensor->scalar_type() != row.parameter.scalar_type() || tensor->device() != gpu ||
        tensor->sizes() != row.parameter.sizes() || tensor->strides() != row.parameter.strides()) {
      return false;
    }
  }
  return CanBeRead(row.parameter, gpu) && row.step.device() == gpu &&
         row.step.scalar_type() == at::kFloat;
}

}  // namespace

// A list as a kernel reads it, on the device. What has not changed since the last launch is not sent again.
struct ListKernels::List {
  template <typename Row>
  void Send(const std::vector<Row>& rows, c10::Device gpu) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(rows));
    if (std::ranges::equal(bytes, sent_)) return;
    device_rows = OnDevice(bytes, gpu);
    sent_.assign(bytes.begin(), bytes.end());
    std::vector<int64_t> counts;
    for (const Row& row : rows) counts.push_back(row.count);
    if (counts == counts_) return;
    std::vector<Stretch> stretches;
    for (size_t i = 0; i < counts.size(); ++i) {
      for (int64_t k = 0; k * kStretch < counts[i]; ++k) {
        stretches.push_back({static_cast<int32_t>(i), static_cast<int32_t>(k)});
      }
    }
    blocks = static_cast<int64_t>(stretches.size());
    device_stretches = OnDevice(std::as_bytes(std::span(stretches)), gpu);
    counts_ = std::move(counts);
  }

  int64_t blocks = 0;
  at::Tensor device_rows, device_stretches;

 private:
  // Through page-locked memory, so that the host need not wait; libtorch reuses it only after the copy.
  static at::Tensor OnDevice(std::span<const std::byte> bytes, c10::Device gpu) {
    const auto size = static_cast<int64_t>(bytes.size());
    at::Tensor host = at::empty({size}, at::TensorOptions(at::kByte).pinned_memory(true));
    std::memcpy(host.mutable_data_ptr(), bytes.data(), bytes.size());
    return at::empty({size}, at::TensorOptions(at::kByte).device(gpu))
        .copy_(host, /*non_blocking=*/true);
  }

  std::vector<std::byte> sent_;
  std::vector<int64_t> counts_;
};

ListKernels::ListKernels() = default;
ListKernels::~ListKernels() = default;

ListKernels::List& ListKernels::Find(ListsByDtype& lists, at::ScalarType dtype) {
  std::unique_ptr<List>& list = lists[dtype];
  if (list == nullptr) list = std::make_unique<List>();
  return *list;
}

std::vector<fusion::KernelSource> ListKernels::Sources() {
  std::vector<fusion::KernelSource> sources;
  for (const Kernel kernel : kKernels) {
    for (const at::ScalarType dtype : kDtypes) {
      sources.push_back(FunctionOf(kernel, dtype).source());
    }
  }
  return sources;
}

bool ListKernels::UpdateAdamW(std::span<const AdamWRow> rows, const AdamWRates& rates) {
  if (rows.empty()) return true;
  const c10::Device gpu = rows[0].parameter.device();
  std::map<at::ScalarType, std::vector<AdamWPointers>> by_dtype;
  for (const AdamWRow& row : rows) {
    if (!CanBeUpdated(row, gpu)) return false;
    by_dtype[row.parameter.scalar_type()].push_back(
        {row.parameter.mutable_data_ptr(), row.gradient.const_data_ptr(),
         row.mean.mutable_data_ptr(), row.mean_square.mutable_data_ptr(), row.step.const_data_ptr(),
         row.parameter.numel(), static_cast<float>(row.weight_decay), 0});
  }
  for (const auto& [dtype, pointers] : by_dtype) {
    if (!FunctionOf(Kernel::kAdamW, dtype).IsAvailable(gpu)) return false;
  }
  const c10::DeviceGuard guard(gpu);
  for (const auto& [dtype, pointers] : by_dtype) {
    List& list = Find(updated_, dtype);
    list.Send(pointers, gpu);
    if (list.blocks == 0) continue;
    void* on_device[] = {list.device_rows.mutable_data_ptr(),
                         list.device_stretches.mutable_data_ptr()};
    std::array numbers = {static_cast<float>(rates.learning_rate), static_cast<float>(rates.beta1),
                          static_cast<float>(rates.beta2), static_cast<float>(rates.eps),
                          static_cast<float>(rates.gradient_divisor)};
    std::vector<void*> arguments = {&on_device[0], &on_device[1]};
    for (float& number : numbers) arguments.push_back(&number);
    FunctionOf(Kernel::kAdamW, dtype).Launch(gpu, list.blocks, kThreads, arguments.data());
  }
  return true;
}

at::Tensor ListKernels::SumOfSquares(std::span<const at::Tensor> tensors) {
  if (tensors.empty()) return {};
  const c10::Device gpu = tensors[0].device();
  std::map<at::ScalarType, std::vector<SquarePointers>> by_dtype;
  for (const at::Tensor& tensor : tensors) {
    if (!CanBeRead(tensor, gpu)) return {};
    by_dtype[tensor.scalar_type()].push_back({tensor.const_data_ptr(), tensor.numel()});
  }
  for (const auto& [dtype, pointers] : by_dtype) {
    if (!FunctionOf(Kernel::kSquares, dtype).IsAvailable(gpu)) return {};
  }
  const c10::DeviceGuard guard(gpu);
  at::Tensor sum = at::zeros({}, at::TensorOptions(at::kDouble).device(gpu));
  for (const auto& [dtype, pointers] : by_dtype) {
    List& list = Find(squared_, dtype);
    list.Send(pointers, gpu);
    if (list.blocks == 0) continue;
    at::Tensor sums = at::empty({list.blocks}, at::TensorOptions(at::kFloat).device(gpu));
    void* on_device[] = {list.device_rows.mutable_data_ptr(),
                         list.device_stretches.mutable_data_ptr(), sums.mutable_data_ptr()};
    void* arguments[] = {&on_device[0], &on_device[1], &on_device[2]};
    FunctionOf(Kernel::kSquares, dtype).Launch(gpu, list.blocks, kThreads, arguments);
    sum = sum + sums.sum(at::kDouble);
  }
  return sum;
}

}  // namespace gt
