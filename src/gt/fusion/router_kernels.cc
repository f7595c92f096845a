#include "gt/fusion/router_kernels.h"

namespace gt::fusion {
namespace {

// What both begin with. Softmax adds up as libtorch's does for rows that fit into a warp.
constexpr const char* kScores = R"(
constexpr int VECTORS = $VECTORS, THREADS = $THREADS;
constexpr bool SIGMOID = $SIGMOID, NORMALIZED = $NORMALIZED;
#define EACH_EXPERT(v, expert) \
  _Pragma("unroll") for (int v = 0, expert = threadIdx.x % 32; v < VECTORS; ++v, expert += 32)

__device__ __forceinline__ float WarpMax(float x) {
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
  return x;
}

__device__ __forceinline__ void FindScores(const float* __restrict__ logits, const int experts,
                                           float (&score)[VECTORS]) {
  const float least = __int_as_float(0xff800000);
  EACH_EXPERT(v, expert) score[v] = expert < experts ? logits[expert] : least;
  if (SIGMOID) {
    EACH_EXPERT(v, expert) score[v] = __fdiv_rn(1.0f, __fadd_rn(1.0f, expf(-score[v])));
    return;
  }
  float most = least, sum = 0.0f;
  EACH_EXPERT(v, expert) most = fmaxf(most, score[v]);
  most = WarpMax(most);
  EACH_EXPERT(v, expert) {
    score[v] = expert < experts ? expf(__fsub_rn(score[v], most)) : 0.0f;
    sum = __fadd_rn(sum, score[v]);
  }
  sum = WarpSum(sum);
  EACH_EXPERT(v, expert) score[v] = __fdiv_rn(score[v], sum);
}
)";

constexpr const char* kForward = R"(
constexpr bool BIASED = $BIASED, GROUPED = $GROUPED;

// A number that is larger for what is chosen earlier, in a total order: NaN before everything, zeros of both
// signs equal. 0 is what may not be chosen any more.
__device__ __forceinline__ unsigned KeyOf(float x) {
  if (x != x) return 0xffffffffu;
  const unsigned bits = __float_as_uint(__fadd_rn(x, 0.0f));
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float ValueOf(unsigned key) {
  return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

// The expert with the largest key, of equal ones the first; its key is 0 afterwards.
__device__ __forceinline__ int TakeBest(unsigned (&key)[VECTORS], unsigned& most) {
  unsigned own = 0, at = 0xffffffffu;
  EACH_EXPERT(v, expert) {
    if (key[v] > own) {
      own = key[v];
      at = expert;
    }
  }
  most = __reduce_max_sync(0xffffffffu, own);
  const int best = __reduce_min_sync(0xffffffffu, own == most ? at : 0xffffffffu);
  EACH_EXPERT(v, expert) {
    if (expert == best) key[v] = 0;
  }
  return best;
}

// Groups count by the sum of their two best. What is in no kept one is as bad as can be.
__device__ __forceinline__ void KeepBestGroups(unsigned (&key)[VECTORS], const int experts,
                                               const int groups, const int kept) {
  const int lane = threadIdx.x % 32, size = experts / groups;
  int home[VECTORS];
  EACH_EXPERT(v, expert) home[v] = expert / size;
  unsigned of_group = 0;
  for (int group = 0; group < groups; ++group) {
    unsigned member[VECTORS], first, second;
    EACH_EXPERT(v, expert) member[v] = home[v] == group ? key[v] : 0;
    TakeBest(member, first);
    TakeBest(member, second);
    const float sum = size > 1 ? __fadd_rn(ValueOf(first), ValueOf(second)) : ValueOf(first);
    if (lane == group) of_group = KeyOf(sum);
  }
  unsigned allowed = 0;
  for (int i = 0; i < kept; ++i) {
    const unsigned most = __reduce_max_sync(0xffffffffu, of_group);
    const int best = __reduce_min_sync(0xffffffffu, of_group == most ? (unsigned)lane : 32u);
    if (lane == best) of_group = 0;
    allowed |= 1u << best;
  }
  EACH_EXPERT(v, expert) {
    if (expert < experts && !(allowed >> home[v] & 1)) {
      key[v] = KeyOf(__int_as_float(0xff800000));
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) gt_router(
    const float* __restrict__ logits, const float* __restrict__ bias, float* __restrict__ weights,
    long long* __restrict__ chosen, const long long rows, const long long stride,
    const int experts, const int count, const int groups, const int kept, const float scale) {
  __shared__ float shared[THREADS / 32][32 * VECTORS];
  const long long row = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const int lane = threadIdx.x % 32;
  float* const scores = shared[threadIdx.x / 32];
  float score[VECTORS];
  unsigned key[VECTORS], most;
  FindScores(logits + row * stride, experts, score);
  EACH_EXPERT(v, expert) {
    scores[expert] = score[v];
    key[v] = 0;
    if (expert < experts) key[v] = KeyOf(BIASED ? __fadd_rn(score[v], bias[expert]) : score[v]);
  }
  __syncwarp();
  if (GROUPED) KeepBestGroups(key, experts, groups, kept);
  int own = 0;
  for (int i = 0; i < count; ++i) {
    const int best = TakeBest(key, most);
    if (lane == i) own = best;
  }
  float weight = lane < count ? scores[own] : 0.0f;
  if (NORMALIZED) weight = __fdiv_rn(weight, __fadd_rn(WarpSum(weight), $EPSILONf));
  if (lane >= count) return;
  weights[row * count + lane] = __fmul_rn(weight, scale);
  chosen[row * count + lane] = own;
}
)";

constexpr const char* kBackward = R"(
// With s the scores, w the chosen ones, S their sum and g the gradient of w / S:
//   dw = (g - sum(g * w / S)) / S,  of softmax dx = s * (dw - sum(dw * w)),  of sigmoid dx = dw * (1 - s) * s.
extern "C" __global__ void __launch_bounds__(THREADS) gt_router_backward(
    const float* __restrict__ grad, const float* __restrict__ logits,
    const long long* __restrict__ chosen, float* __restrict__ result, const long long rows,
    const long long stride, const int experts, const int count, const float scale) {
  __shared__ float shared[THREADS / 32][2][32 * VECTORS];
  const long long row = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (row >= rows) return;
  const int lane = threadIdx.x % 32;
  float* const scores = shared[threadIdx.x / 32][0];
  float* const slopes = shared[threadIdx.x / 32][1];  // each lane reads and writes its own experts
  float score[VECTORS];
  FindScores(logits + row * stride, experts, score);
  EACH_EXPERT(v, expert) {
    scores[expert] = score[v];
    slopes[expert] = 0.0f;
  }
  __syncwarp();
  int own = 0;
  float weight = 0.0f, slope = 0.0f;
  if (lane < count) {
    own = (int)chosen[row * count + lane];
    weight = scores[own];
    slope = __fmul_rn(grad[row * count + lane], scale);
  }
  if (NORMALIZED) {
    const float sum = __fadd_rn(WarpSum(weight), $EPSILONf);
    const float dot = WarpSum(__fmul_rn(slope, __fdiv_rn(weight, sum)));
    if (lane < count) slope = __fdiv_rn(__fsub_rn(slope, dot), sum);
  }
  const float dot = SIGMOID ? 0.0f : WarpSum(__fmul_rn(slope, weight));
  for (int i = 0; i < count; ++i) {
    const int expert = __shfl_sync(0xffffffffu, own, i);
    const float more = __shfl_sync(0xffffffffu, slope, i);
    if (expert % 32 == lane) slopes[expert] = __fadd_rn(slopes[expert], more);
  }
  result += row * experts;
  EACH_EXPERT(v, expert) {
    if (expert >= experts) continue;
    result[expert] =
        SIGMOID ? __fmul_rn(__fmul_rn(slopes[expert], __fsub_rn(1.0f, score[v])), score[v])
                : __fmul_rn(score[v], __fsub_rn(slopes[expert], dot));
  }
}
)";

RowKernel Router(const char* name, const char* text, const RouterForm& form) {
  return FilledKernel(name, std::string(kScores) + text,
                      {{"$VECTORS", NumberText(form.vectors)},
                       {"$THREADS", NumberText(kRouterThreads)},
                       {"$SIGMOID", BoolText(form.sigmoid)},
                       {"$NORMALIZED", BoolText(form.normalized)},
                       {"$BIASED", BoolText(form.biased)},
                       {"$GROUPED", BoolText(form.grouped)},
                       {"$EPSILON", "1e-20"}});
}

}  // namespace

RowKernel RouterSource(const RouterForm& form) { return Router("gt_router", kForward, form); }

RowKernel RouterBackwardSource(const RouterForm& form) {
  return Router("gt_router_backward", kBackward, form);
}

}  // namespace gt::fusion
