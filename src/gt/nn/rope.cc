#include "gt/nn/rope.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

namespace gt::nn {
namespace {

double Stretched(double frequency, const RopeScaling& scaling) {
  double wavelength = 2 * std::numbers::pi / frequency;
  double original = static_cast<double>(scaling.original_length);
  double longest_kept = original / scaling.high_frequency_factor;
  double shortest_stretched = original / scaling.low_frequency_factor;
  if (wavelength < longest_kept) return frequency;
  if (wavelength > shortest_stretched) return frequency / scaling.factor;
  double smooth = (original / wavelength - scaling.low_frequency_factor) /
                  (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

at::Tensor RopeTable(int64_t length, int64_t head_width, double theta, const RopeScaling& scaling) {
  int64_t pairs = head_width / 2;
  at::Tensor frequencies = at::empty({pairs}, at::kFloat);
  for (int64_t i = 0; i < pairs; ++i) {
    double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head_width);
    double frequency = std::pow(theta, -exponent);
    frequencies.data_ptr<float>()[i] = static_cast<float>(Stretched(frequency, scaling));
  }
  at::Tensor angles = at::outer(at::arange(length, at::kFloat), frequencies);
  return at::polar(at::ones_like(angles), angles);
}

at::Tensor ApplyRope(const at::Tensor& x, const at::Tensor& table) {
  auto sizes = x.sym_sizes();
  c10::SymInt pairs = sizes[3] / 2;
  at::Tensor complex = at::view_as_complex(
      x.to(at::kFloat).reshape_symint({sizes[0], sizes[1], sizes[2], pairs, 2}));
  at::Tensor turned = complex * table.unsqueeze(0).unsqueeze(2);
  return at::view_as_real(turned).reshape_symint(sizes).to(x.scalar_type());
}

}  // namespace gt::nn
