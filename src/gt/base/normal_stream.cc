// Compiled with -ffp-contract=off (CMakeLists.txt): a fused multiply-add, which some of the variants
// below would use, rounds once where two roundings are meant, and so changes bits.
#include "gt/base/normal_stream.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace gt {
namespace {

// What is inlined into each variant is compiled with its instructions.
#define GT_IN_EVERY_VARIANT [[gnu::always_inline]] inline

// Exact for numbers below 2^53. Processors without 64-bit conversions do not convert vectors, but
// with the halves in the mantissas of 2^84 and 2^52 it takes no conversion.
GT_IN_EVERY_VARIANT double ToDouble(uint64_t number) {
  const double high = std::bit_cast<double>((number >> 32) | 0x4530000000000000ull) - 0x1p84;
  const double low =
      std::bit_cast<double>((number & 0xffffffffull) | 0x4330000000000000ull) - 0x1p52;
  return high + low;
}

// A number in (0, 1): SplitMix64 at position `index` of the stream.
GT_IN_EVERY_VARIANT double UniformAt(uint64_t stream, uint64_t index) {
  uint64_t z = stream + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return (ToDouble(z >> 11) + 0.5) * 0x1p-53;
}

// Inverse of the normal distribution (Acklam's rational approximation, relative error 1e-9): one
// formula for the middle, and one for each tail, which takes a logarithm.
constexpr double kTail = 0.02425;

GT_IN_EVERY_VARIANT bool IsInTail(double p) {
  return static_cast<int>(p < kTail) | static_cast<int>(p > 1 - kTail);
}

GT_IN_EVERY_VARIANT double MiddleQuantile(double p) {
  constexpr double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                          1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
                          6.680131188771972e+01, -1.328068155288572e+01};
  const double q = p - 0.5, r = q * q;
  return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
         (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
}

double TailQuantile(double p) {
  constexpr double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                          -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                          3.754408661907416e+00};
  const auto tail = [&](double q) {
    return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
           ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  };
  if (p < kTail) return tail(std::sqrt(-2 * std::log(p)));
  return -tail(std::sqrt(-2 * std::log1p(-p)));
}

template <typename Number>
struct Request {
  uint64_t stream = 0;
  uint64_t first = 0;
  double below = 0;
  double deviation = 0;
  std::span<Number> out;
};

// Loops without branches over blocks that stay in the nearest cache, which the compiler turns into
// vector instructions. One number in 20 is in a tail: those are done one by one, with the C
// library's logarithm, since a vector one has other bits.
template <typename Number>
GT_IN_EVERY_VARIANT void FillInBlocks(const Request<Number>& request) {
  constexpr int kBlock = 512;
  alignas(64) double shares[kBlock];
  int32_t tails[kBlock];
  const double below = request.below, kept = 1 - 2 * below, deviation = request.deviation;
  for (size_t begin = 0; begin < request.out.size(); begin += kBlock) {
    const int count = static_cast<int>(std::min<size_t>(kBlock, request.out.size() - begin));
    const uint64_t first = request.first + begin;
    Number* const out = request.out.data() + begin;
    // A truncated distribution is the whole one, drawn from the share of it that is kept.
    for (int i = 0; i < count; ++i) {
      shares[i] = below + UniformAt(request.stream, first + static_cast<uint64_t>(i)) * kept;
    }
    for (int i = 0; i < count; ++i) {
      out[i] = static_cast<Number>(deviation * MiddleQuantile(shares[i]));
    }
    int in_tails = 0;
    for (int i = 0; i < count; ++i) {
      tails[in_tails] = i;
      in_tails += static_cast<int>(IsInTail(shares[i]));
    }
    for (int j = 0; j < in_tails; ++j) {
      out[tails[j]] = static_cast<Number>(deviation * TailQuantile(shares[tails[j]]));
    }
  }
}

template <typename Number>
void FillPlain(const Request<Number>& request) {
  FillInBlocks(request);
}

#if defined(__x86_64__)
template <typename Number>
[[gnu::target("avx2")]] void FillAvx2(const Request<Number>& request) {
  FillInBlocks(request);
}
template <typename Number>
[[gnu::target("avx512f,avx512dq,avx512vl")]] void FillAvx512(const Request<Number>& request) {
  FillInBlocks(request);
}

template <typename Number>
constexpr void (*kVariants[])(const Request<Number>&) = {FillPlain, FillAvx2, FillAvx512};

int UsableVariants() {
  if (!__builtin_cpu_supports("avx2")) return 1;
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
  return wide ? 3 : 2;
}
#else
template <typename Number>
constexpr void (*kVariants[])(const Request<Number>&) = {FillPlain};

int UsableVariants() { return 1; }
#endif

}  // namespace

NormalStream::NormalStream(uint64_t stream, double deviation, std::optional<double> cut)
    : stream_(stream), deviation_(deviation) {
  if (cut) below_ = 0.5 * std::erfc(*cut / (deviation * std::numbers::sqrt2));
}

int NormalStream::Variants() {
  static const int count = UsableVariants();
  return count;
}

void NormalStream::Fill(uint64_t first, std::span<float> out) const {
  FillWithVariant(Variants() - 1, first, out);
}

void NormalStream::FillWithVariant(int variant, uint64_t first, std::span<float> out) const {
  kVariants<float>[variant]({stream_, first, below_, deviation_, out});
}

void NormalStream::FillWithVariant(int variant, uint64_t first, std::span<double> out) const {
  kVariants<double>[variant]({stream_, first, below_, deviation_, out});
}

}  // namespace gt
