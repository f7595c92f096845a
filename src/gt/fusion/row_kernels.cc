#include "gt/fusion/row_kernels.h"

#include <algorithm>

namespace gt::fusion {
namespace {

constexpr int kMostThreads = 256;
constexpr int kMostVectors = 8;
constexpr int kWarp = 32;

}  // namespace

bool HasRowKernels(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16 || dtype == DType::kFloat32;
}

std::optional<RowShape> RowShapeFor(int64_t width, int64_t alignment, DType dtype) {
  RowShape shape;
  shape.lanes = 16 / ItemSize(dtype);
  while (width % shape.lanes != 0 || alignment % shape.lanes != 0) shape.lanes /= 2;
  const int64_t vectors = (width + shape.lanes - 1) / shape.lanes;
  const int64_t warps = std::clamp<int64_t>((vectors + kWarp - 1) / kWarp, 1, kMostThreads / kWarp);
  shape.threads = static_cast<int>(warps) * kWarp;
  const int64_t each = (vectors + shape.threads - 1) / shape.threads;
  if (each > kMostVectors) return std::nullopt;
  shape.vectors = static_cast<int>(std::max<int64_t>(each, 1));
  return shape;
}

RowKernel RmsNormSource(DType dtype, const RowShape& shape, bool added) {
  return FilledKernel("gt_rms_norm", R"(
typedef $TYPE T;
constexpr int N = $LANES, VECTORS = $VECTORS, THREADS = $THREADS;
constexpr bool ADDED = $ADDED;

// A block for each row, which stays in registers between the sum of squares and the result.
extern "C" __global__ void __launch_bounds__(THREADS) gt_rms_norm(
    const T* __restrict__ x, const T* __restrict__ other, const T* __restrict__ weight,
    T* __restrict__ sum, T* __restrict__ out, float* __restrict__ rstd, const float eps,
    const long long stride_x, const long long stride_other, const int width) {
  __shared__ float shared[32];
  const long long row = blockIdx.x;
  x += row * stride_x;
  other += row * stride_other;
  sum += row * width;
  out += row * width;
  Vec<T, N> value[VECTORS];
  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int column = (v * THREADS + threadIdx.x) * N;
    if (column >= width) continue;
    value[v] = Load<N>(x + column);
    if (ADDED) {
      const Vec<T, N> more = Load<N>(other + column);
      LANES(N) value[v][k] = To<T>(__fadd_rn(Float(value[v][k]), Float(more[k])));
      Store(sum + column, value[v]);
    }
    LANES(N) squares = __fmaf_rn(Float(value[v][k]), Float(value[v][k]), squares);
  }
  const float mean = __fdiv_rn(BlockSum<THREADS>(squares, shared), (float)width);
  const float scale = rsqrtf(__fadd_rn(mean, eps));
  if (threadIdx.x == 0) rstd[row] = scale;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int column = (v * THREADS + threadIdx.x) * N;
    if (column >= width) continue;
    const Vec<T, N> factor = Load<N>(weight + column);
    Vec<T, N> result;
    LANES(N) result[k] = To<T>(__fmul_rn(__fmul_rn(Float(value[v][k]), scale), Float(factor[k])));
    Store(out + column, result);
  }
}
)",
                      {{"$TYPE", TypeText(dtype)},
                       {"$LANES", NumberText(shape.lanes)},
                       {"$VECTORS", NumberText(shape.vectors)},
                       {"$THREADS", NumberText(shape.threads)},
                       {"$ADDED", BoolText(added)}});
}

int64_t RmsNormBackwardBlocks(int64_t rows, const RowShape& shape) {
  // Enough to fill a large GPU; of narrow rows more. Not a property of the device: sums must not depend
  // on it.
  constexpr int64_t kThreads = 512 * kMostThreads;
  return std::max<int64_t>(1, std::min(rows, kThreads / shape.threads));
}

RowKernel RmsNormBackwardSource(DType dtype, const RowShape& shape, bool added) {
  // Registers for four blocks on a multiprocessor, if rows are not too long for that.
  const int resident = shape.vectors * shape.lanes <= 16 ? 4 * kMostThreads / shape.threads : 1;
  return FilledKernel("gt_rms_norm_backward", R"(
typedef $TYPE T;
constexpr int N = $LANES, VECTORS = $VECTORS, THREADS = $THREADS;
constexpr bool ADDED = $ADDED;

// With y = x * r * w and r = 1 / sqrt(mean(x^2) + eps):  dx = r * g * w - x * r^3 * mean(g * w * x), and the
// gradient of w is the sum of g * x * r over all rows, of which a block adds up every gridDim-th.
extern "C" __global__ void __launch_bounds__(THREADS, $RESIDENT) gt_rms_norm_backward(
    const T* __restrict__ grad, const T* __restrict__ x, const float* __restrict__ rstd,
    const T* __restrict__ weight, const T* __restrict__ other, T* __restrict__ result,
    float* __restrict__ partial, const long long rows, const long long stride_grad,
    const long long stride_x, const long long stride_other, const int width) {
  __shared__ float shared[32];
  Vec<T, N> w[VECTORS];
  float of_weight[VECTORS][N];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int column = (v * THREADS + threadIdx.x) * N;
    LANES(N) of_weight[v][k] = 0.0f;
    if (column < width) w[v] = Load<N>(weight + column);
  }
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const float r = rstd[row];
    Vec<T, N> g[VECTORS], value[VECTORS];
    float dot = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int column = (v * THREADS + threadIdx.x) * N;
      if (column >= width) continue;
      g[v] = Load<N>(grad + row * stride_grad + column);
      value[v] = Load<N>(x + row * stride_x + column);
    }
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int column = (v * THREADS + threadIdx.x) * N;
      if (column >= width) continue;
      LANES(N) {
        const float a = Float(g[v][k]), b = Float(value[v][k]);
        dot = __fmaf_rn(__fmul_rn(a, Float(w[v][k])), b, dot);
        of_weight[v][k] = __fmaf_rn(a, __fmul_rn(b, r), of_weight[v][k]);
      }
    }
    const float mean = __fdiv_rn(BlockSum<THREADS>(dot, shared), (float)width);
    const float slope = -__fmul_rn(__fmul_rn(__fmul_rn(r, r), r), mean);
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int column = (v * THREADS + threadIdx.x) * N;
      if (column >= width) continue;
      Vec<T, N> out;
      LANES(N) {
        const float a = __fmul_rn(r, __fmul_rn(Float(g[v][k]), Float(w[v][k])));
        out[k] = To<T>(__fmaf_rn(Float(value[v][k]), slope, a));
      }
      if (ADDED) {
        const Vec<T, N> more = Load<N>(other + row * stride_other + column);
        LANES(N) out[k] = To<T>(__fadd_rn(Float(out[k]), Float(more[k])));
      }
      Store(result + row * width + column, out);
    }
  }
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int column = (v * THREADS + threadIdx.x) * N;
    if (column >= width) continue;
    LANES(N) partial[(long long)blockIdx.x * width + column + k] = of_weight[v][k];
  }
}
)",
                      {{"$TYPE", TypeText(dtype)},
                       {"$LANES", NumberText(shape.lanes)},
                       {"$VECTORS", NumberText(shape.vectors)},
                       {"$THREADS", NumberText(shape.threads)},
                       {"$RESIDENT", NumberText(std::min(resident, 16))},
                       {"$ADDED", BoolText(added)}});
}

RowKernel ColumnSumSource(DType result) {
  return FilledKernel("gt_column_sum", R"(
typedef $TYPE T;
constexpr int ROWS = $THREADS / 32;

// A warp reads 32 neighbouring columns of every ROWS-th row.
extern "C" __global__ void __launch_bounds__($THREADS) gt_column_sum(
    const float* __restrict__ partial, T* __restrict__ result, const long long rows,
    const int width) {
  __shared__ float shared[ROWS][32];
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32;
  const int column = blockIdx.x * 32 + lane;
  float sum = 0.0f;
  if (column < width) {
#pragma unroll 4
    for (long long row = first; row < rows; row += ROWS) {
      sum = __fadd_rn(sum, partial[row * width + column]);
    }
  }
  shared[first][lane] = sum;
  __syncthreads();
  if (first != 0 || column >= width) return;
  for (int r = 1; r < ROWS; ++r) sum = __fadd_rn(sum, shared[r][lane]);
  result[column] = To<T>(sum);
}
)",
                      {{"$TYPE", TypeText(result)}, {"$THREADS", NumberText(kColumnThreads)}});
}

RowKernel LogSumExpSource(DType dtype, int lanes) {
  return FilledKernel("gt_log_sum_exp", R"(
typedef $TYPE T;
constexpr int N = $LANES, THREADS = $THREADS;

// Terms relative to the largest so far: sum * exp(most).
struct Running { float most, sum; };

__device__ __forceinline__ Running Joined(Running a, Running b) {
  const float most = fmaxf(a.most, b.most);
  if (most == __int_as_float(0xff800000)) return Running{most, __fadd_rn(a.sum, b.sum)};
  return Running{most, __fadd_rn(__fmul_rn(a.sum, expf(__fsub_rn(a.most, most))),
                                 __fmul_rn(b.sum, expf(__fsub_rn(b.most, most))))};
}

extern "C" __global__ void __launch_bounds__(THREADS) gt_log_sum_exp(
    const T* __restrict__ x, float* __restrict__ result, const long long stride, const int width) {
  __shared__ Running shared[THREADS / 32];
  x += blockIdx.x * stride;
  Running own{__int_as_float(0xff800000), 0.0f};
#pragma unroll 2
  for (int column = threadIdx.x * N; column < width; column += THREADS * N) {
    const Vec<T, N> values = Load<N>(x + column);
    float most = own.most;
    LANES(N) most = fmaxf(most, Float(values[k]));
    if (most > own.most) own.sum = __fmul_rn(own.sum, expf(__fsub_rn(own.most, most)));
    own.most = most;
    LANES(N) {
      // Minus infinity is no term, also where nothing else has been seen.
      const float value = Float(values[k]);
      if (value != __int_as_float(0xff800000)) {
        own.sum = __fadd_rn(own.sum, expf(__fsub_rn(value, most)));
      }
    }
  }
  for (int d = 16; d > 0; d /= 2) {
    const Running other{__shfl_xor_sync(0xffffffffu, own.most, d),
                        __shfl_xor_sync(0xffffffffu, own.sum, d)};
    own = Joined(own, other);
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < THREADS / 32; ++w) own = Joined(own, shared[w]);
  result[blockIdx.x] = __fadd_rn(own.most, logf(own.sum));
}
)",
                      {{"$TYPE", TypeText(dtype)},
                       {"$LANES", NumberText(lanes)},
                       {"$THREADS", NumberText(kLogSumThreads)}});
}

RowKernel CrossEntropyBackwardSource(DType dtype, int lanes) {
  return FilledKernel("gt_cross_entropy_backward", R"(
typedef $TYPE T;
constexpr int N = $LANES, THREADS = $THREADS;

extern "C" __global__ void __launch_bounds__(THREADS) gt_cross_entropy_backward(
    const float* __restrict__ grad, const float* __restrict__ scale, const T* __restrict__ x,
    const long long* __restrict__ labels, const float* __restrict__ log_sum, T* __restrict__ result,
    const long long stride, const int width, const int blocks) {
  const long long row = blockIdx.x / blocks;
  const int column = ((int)(blockIdx.x % blocks) * THREADS + threadIdx.x) * N;
  if (column >= width) return;
  const float factor = scale[row], base = log_sum[row], right = grad[row];
  const long long label = labels[row];
  const Vec<T, N> values = Load<N>(x + row * stride + column);
  Vec<T, N> out;
  LANES(N) {
    float slope = __fmul_rn(expf(__fsub_rn(Float(values[k]), base)), factor);
    if (column + k == label) slope = __fsub_rn(slope, right);
    out[k] = To<T>(slope);
  }
  Store(result + row * width + column, out);
}
)",
                      {{"$TYPE", TypeText(dtype)},
                       {"$LANES", NumberText(lanes)},
                       {"$THREADS", NumberText(kRowThreads)}});
}

RowKernel RowDotsSource(DType a, DType b, int lanes, bool looked_up) {
  return FilledKernel("gt_row_dots", R"(
typedef $A A;
typedef $B B;
constexpr int N = $LANES, THREADS = $THREADS;
constexpr bool LOOKED_UP = $LOOKED_UP;

extern "C" __global__ void __launch_bounds__(THREADS) gt_row_dots(
    const A* __restrict__ a, const B* __restrict__ b, const long long* __restrict__ index,
    float* __restrict__ result, const long long count, const long long inner,
    const long long a_outer, const long long a_inner, const long long b_outer,
    const long long b_inner, const int width) {
  const long long i = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (i >= count) return;
  const long long outer = i / inner, rest = i % inner;
  a += LOOKED_UP ? index[i] * a_outer : outer * a_outer + rest * a_inner;
  b += outer * b_outer + rest * b_inner;
  float sum[N];
  LANES(N) sum[k] = 0.0f;
#pragma unroll 4
  for (int column = threadIdx.x % 32 * N; column < width; column += 32 * N) {
    const Vec<A, N> left = Load<N>(a + column);
    const Vec<B, N> right = Load<N>(b + column);
    LANES(N) sum[k] = __fmaf_rn(Float(left[k]), Float(right[k]), sum[k]);
  }
  for (int k = 1; k < N; ++k) sum[0] = __fadd_rn(sum[0], sum[k]);
  sum[0] = WarpSum(sum[0]);
  if (threadIdx.x % 32 == 0) result[i] = sum[0];
}
)",
                      {{"$A", TypeText(a)},
                       {"$B", TypeText(b)},
                       {"$LANES", NumberText(lanes)},
                       {"$LOOKED_UP", BoolText(looked_up)},
                       {"$THREADS", NumberText(kRowThreads)}});
}

}  // namespace gt::fusion
