// Rotary position embedding in its complex form: neighbouring pairs of channels are rotated by an
// angle that grows with the position, in float32.
#pragma once

#include <ATen/core/Tensor.h>

namespace gt::nn {

// Llama 3.1's stretching of low frequencies for contexts longer than the original one.
struct RopeScaling {
  double factor = 8.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  int64_t original_length = 8192;
};

// cis[position, pair] = exp(i * position * frequency of the pair); complex64 [length, head_width /
// 2].
at::Tensor RopeTable(int64_t length, int64_t head_width, double theta, const RopeScaling& scaling);

// x: [batch, length, heads, head_width]; table: the first `length` rows of a RopeTable.
at::Tensor ApplyRope(const at::Tensor& x, const at::Tensor& table);

}  // namespace gt::nn
