// Normally distributed numbers, each a function of the stream and of its position alone: any part of
// a stream can be drawn by itself, on any thread, in any order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace gt {

class NormalStream {
 public:
  // Mean 0. With a cut, from the part of the distribution in [-cut, cut].
  NormalStream(uint64_t stream, double deviation, std::optional<double> cut = std::nullopt);

  // The numbers at positions first, first + 1, ...
  void Fill(uint64_t first, std::span<float> out) const;

  // The same with the instructions of one generation of processors, of those that this one has; Fill
  // uses the last. Bits are the same with all of them, also before they are rounded to float32.
  static int Variants();
  void FillWithVariant(int variant, uint64_t first, std::span<float> out) const;
  void FillWithVariant(int variant, uint64_t first, std::span<double> out) const;

 private:
  uint64_t stream_;
  double deviation_;
  double below_ = 0.0;  // share of the distribution that is cut off at each end
};

}  // namespace gt
