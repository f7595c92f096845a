#include "gt/fusion/order_kernels.h"

#include <algorithm>

namespace gt::fusion {
namespace {

constexpr const char* kBegin = R"(
constexpr int EXPERTS = $EXPERTS, THREADS = $THREADS, WARPS = THREADS / 32;
typedef long long Number;

// What is no expert is counted nowhere, and what is after the last number is none.
__device__ __forceinline__ int ExpertAt(const Number* __restrict__ numbers, Number i, Number end) {
  const unsigned long long expert = i < end ? (unsigned long long)numbers[i] : EXPERTS;
  return expert < EXPERTS ? (int)expert : EXPERTS;
}
)";

constexpr const char* kCount = R"(
extern "C" __global__ void __launch_bounds__(THREADS) gt_expert_count(
    const Number* __restrict__ numbers, int* __restrict__ partial, const Number count,
    const Number each) {
  __shared__ int counts[EXPERTS + 1];
  for (int e = threadIdx.x; e <= EXPERTS; e += THREADS) counts[e] = 0;
  __syncthreads();
  const Number begin = blockIdx.x * each, end = begin + each < count ? begin + each : count;
  for (Number i = begin + threadIdx.x; i < end; i += THREADS) {
    atomicAdd(&counts[ExpertAt(numbers, i, end)], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < EXPERTS; e += THREADS) {
    partial[(Number)blockIdx.x * EXPERTS + e] = counts[e];
  }
}
)";

constexpr const char* kOrder = R"(
extern "C" __global__ void __launch_bounds__(THREADS) gt_expert_order(
    const Number* __restrict__ numbers, const int* __restrict__ partial,
    Number* __restrict__ to_slots, Number* __restrict__ to_rows, Number* __restrict__ counts,
    const Number count, const Number each, const int blocks) {
  // Per warp and expert: how many numbers, then where the warp's next one goes.
  __shared__ int next[WARPS][EXPERTS + 1];
  __shared__ int sums[2][THREADS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  // An expert for each thread: all its numbers, and those of blocks before this one.
  const int expert = threadIdx.x;
  int total = 0, before = 0;
  if (expert < EXPERTS) {
#pragma unroll 16
    for (int b = 0; b < blocks; ++b) {
      const int more = partial[(Number)b * EXPERTS + expert];
      total += more;
      before += b < (int)blockIdx.x ? more : 0;
    }
    if (blockIdx.x == 0) counts[expert] = total;
  }
  // Where the expert's rows begin: sums of all before it.
  sums[0][threadIdx.x] = total;
  int from = 0;
  for (int d = 1; d < THREADS; d *= 2) {
    __syncthreads();
    const int here = (int)threadIdx.x;
    sums[1 - from][here] = sums[from][here] + (here >= d ? sums[from][here - d] : 0);
    from = 1 - from;
  }
  const int first = sums[from][threadIdx.x] - total + before;

  for (int e = lane; e <= EXPERTS; e += 32) next[warp][e] = 0;
  __syncthreads();
  const Number share = each / WARPS;  // `each` is a multiple of THREADS
  const Number block = blockIdx.x * each, begin = block + warp * share;
  const Number end = begin + share < count ? begin + share : count;
  for (Number i = begin + lane; i < end; i += 32) {
    atomicAdd(&next[warp][ExpertAt(numbers, i, end)], 1);
  }
  __syncthreads();
  if (expert < EXPERTS) {
    int place = first;
    for (int w = 0; w < WARPS; ++w) {
      const int more = next[w][expert];
      next[w][expert] = place;
      place += more;
    }
  }
  __syncthreads();
  for (Number round = begin; round < begin + share; round += 32) {
    const Number slot = round + lane;
    const int mine = ExpertAt(numbers, slot, end);
    const unsigned same = __match_any_sync(0xffffffffu, mine);
    const Number row = next[warp][mine] + __popc(same & ((1u << lane) - 1));
    __syncwarp();
    if (same >> lane == 1) next[warp][mine] = (int)row + 1;  // the last of them
    __syncwarp();
    if (mine == EXPERTS) continue;
    to_rows[slot] = row;
    to_slots[row] = slot;
  }
}
)";

RowKernel Order(const char* name, const char* text, int64_t experts) {
  return FilledKernel(name, std::string(kBegin) + text,
                      {{"$EXPERTS", NumberText(experts)}, {"$THREADS", NumberText(kOrderThreads)}});
}

}  // namespace

OrderShape OrderShapeFor(int64_t count) {
  constexpr int64_t kMostBlocks = 64, kLeast = int64_t{2} * kOrderThreads;
  OrderShape shape;
  const int64_t even = (count + kMostBlocks - 1) / kMostBlocks;
  shape.each = std::max(kLeast, (even + kOrderThreads - 1) / kOrderThreads * kOrderThreads);
  shape.blocks = (count + shape.each - 1) / shape.each;
  return shape;
}

RowKernel ExpertCountSource(int64_t experts) { return Order("gt_expert_count", kCount, experts); }
RowKernel ExpertOrderSource(int64_t experts) { return Order("gt_expert_order", kOrder, experts); }

}  // namespace gt::fusion
