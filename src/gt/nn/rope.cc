#include "gt/nn/rope.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace gt::nn {
namespace {

double Stretched(double frequency, const Llama3Scaling& scaling) {
  double wavelength = 2 * std::numbers::pi / frequency;
  auto original = static_cast<double>(scaling.original_length);
  double longest_kept = original / scaling.high_frequency_factor;
  double shortest_stretched = original / scaling.low_frequency_factor;
  if (wavelength < longest_kept) return frequency;
  if (wavelength > shortest_stretched) return frequency / scaling.factor;
  double smooth = (original / wavelength - scaling.low_frequency_factor) /
                  (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// The channel whose frequency turns `rotations` times within the original length.
double ChannelOf(double rotations, int64_t width, double theta, const YarnScaling& scaling) {
  auto original = static_cast<double>(scaling.original_length);
  return static_cast<double>(width) * std::log(original / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

void Stretch(std::vector<double>& frequencies, int64_t width, double theta,
             const YarnScaling& scaling) {
  double low = ChannelOf(scaling.beta_fast, width, theta, scaling);
  double high = ChannelOf(scaling.beta_slow, width, theta, scaling);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  auto last = static_cast<double>(width - 1);
  low = std::clamp(low, 0.0, last);
  high = std::clamp(high, 0.0, last);
  if (low == high) high += 0.001;  // a step instead of a ramp
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= (1 - ramp) + ramp / scaling.factor;
  }
}

}  // namespace

at::Tensor RopeTable(int64_t length, int64_t width, const RopeConfig& config) {
  std::vector<double> frequencies(static_cast<size_t>(width / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(width);
    frequencies[i] = std::pow(config.theta, -exponent);
  }
  double magnitude = 1.0;
  if (const auto* llama3 = std::get_if<Llama3Scaling>(&config.scaling)) {
    for (double& frequency : frequencies) frequency = Stretched(frequency, *llama3);
  } else if (const auto* linear = std::get_if<LinearScaling>(&config.scaling)) {
    for (double& frequency : frequencies) frequency /= linear->factor;
  } else if (const auto* yarn = std::get_if<YarnScaling>(&config.scaling)) {
    Stretch(frequencies, width, config.theta, *yarn);
    magnitude = yarn->attention_factor;
  }
  at::Tensor channels = at::empty({width / 2}, at::kFloat);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    channels.data_ptr<float>()[i] = static_cast<float>(frequencies[i]);
  }
  at::Tensor angles = at::outer(at::arange(length, at::kFloat), channels);
  return at::polar(at::full_like(angles, magnitude), angles);
}

at::Tensor ApplyRope(const at::Tensor& x, const at::Tensor& rotation) {
  c10::SymDimVector sizes(x.sym_sizes().begin(), x.sym_sizes().end());
  c10::SymDimVector pairs = sizes;
  pairs.back() = sizes.back() / 2;
  pairs.push_back(2);
  at::Tensor complex = at::view_as_complex(x.to(at::kFloat).reshape_symint(pairs));
  at::Tensor turn = rotation;
  for (int64_t d = 2; d + 1 < x.dim(); ++d) turn = turn.unsqueeze(2);  // the same for all heads
  return at::view_as_real(complex * turn).reshape_symint(sizes).to(x.scalar_type());
}

double YarnAttentionScale(double factor, double m) {
  return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

}  // namespace gt::nn
