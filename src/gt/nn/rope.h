// Rotary position embedding in its complex form: neighbouring pairs of channels are rotated by an
// angle that grows with the position, in float32. Checkpoints that pair channel i with i + width / 2
// instead are brought into this form by permuting rows when they are read (models/hf.h), so there is
// one form of the computation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <numbers>
#include <variant>

namespace gt::nn {

// Llama 3.1's stretching of low frequencies for contexts longer than the original one.
struct Llama3Scaling {
  double factor = 8.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  int64_t original_length = 8192;
};

// All positions divided by a factor.
struct LinearScaling {
  double factor = 1.0;
};

// YaRN: frequencies that turn less than `beta_slow` times within the original length are divided by
// `factor`, those that turn more than `beta_fast` times are kept, and between them is a ramp.
struct YarnScaling {
  double factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  int64_t original_length = 4096;
  bool truncate = true;           // the ramp begins and ends at whole channels
  double attention_factor = 1.0;  // on cosine and sine
};

struct RopeConfig {
  double theta = 10000.0;
  std::variant<std::monostate, Llama3Scaling, LinearScaling, YarnScaling> scaling = {};
};

// cis[position, pair] = exp(i * position * frequency of the pair); complex64 [length, width / 2].
at::Tensor RopeTable(int64_t length, int64_t width, const RopeConfig& config);

// x: [batch, length, heads..., width]; rotation: [batch, length, width / 2], rows of a RopeTable.
at::Tensor ApplyRope(const at::Tensor& x, const at::Tensor& rotation);

// What YaRN multiplies attention by at this stretch: 0.1 * m * ln(factor) + 1.
double YarnAttentionScale(double factor, double m = 1.0);

}  // namespace gt::nn
