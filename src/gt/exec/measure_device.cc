#include "gt/exec/measure_device.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

namespace gt {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// The best mean of several windows, each long beside the time slices of a scheduler: other work on the
// machine comes and goes.
double Microseconds(const std::function<void()>& body) {
  constexpr double kWindow = 25e3;
  constexpr int kWindows = 3;
  body();  // libraries prepare themselves
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kWindows; ++i) {
    const Clock::time_point start = Clock::now();
    int64_t runs = 0;
    double passed = 0;
    for (; passed < kWindow; passed = MicrosecondsSince(start)) {
      body();
      ++runs;
    }
    best = std::min(best, passed / static_cast<double>(runs));
  }
  return best;
}

double ProductTflops(at::ScalarType dtype) {
  constexpr int64_t kRows = 256, kWidth = 512;
  const at::Tensor a = at::ones({kRows, kWidth}, dtype), b = at::ones({kWidth, kWidth}, dtype);
  at::Tensor out = at::empty({kRows, kWidth}, dtype);
  const double us = Microseconds([&] { at::mm_out(out, a, b); });
  return 2.0 * kRows * kWidth * kWidth / (us * 1e6);
}

// With a new result each time, as in a step: the first touch of memory takes as long as the arithmetic.
double StreamGbPerSecond() {
  constexpr int64_t kElements = int64_t{1} << 18;
  const at::Tensor a = at::ones({kElements}), b = at::ones({kElements});
  const double us = Microseconds([&] { at::add(a, b); });
  return 3.0 * 4.0 * kElements / (us * 1e3);
}

double KernelMicroseconds() {
  const at::Tensor a = at::ones({16}), b = at::ones({16});
  return Microseconds([&] {
           for (int i = 0; i < 100; ++i) at::add(a, b);
         }) /
         100;
}

}  // namespace

DeviceSpeed MeasureCpu() {
  at::NoGradGuard no_gradients;
  DeviceSpeed speed;
  speed.name = "cpu";
  speed.float_tflops = ProductTflops(at::kFloat);
  speed.half_tflops = ProductTflops(at::kBFloat16);
  speed.memory_gb_per_s = StreamGbPerSecond();
  speed.kernel_us = KernelMicroseconds();
  speed.host_link_gb_per_s = speed.memory_gb_per_s;
  return speed;
}

}  // namespace gt
