#include "gt/nn/blocks.h"

#include <ATen/ATen.h>

namespace gt::nn {

Linear::Linear(int64_t in_features, int64_t out_features, Init init) {
  AddParameter("weight", weight_, {out_features, in_features}, init);
}

at::Tensor Linear::forward(const at::Tensor& x) { return at::linear(x, weight_()); }

Embedding::Embedding(int64_t count, int64_t width, Init init) {
  AddParameter("weight", weight_, {count, width}, init);
}

at::Tensor Embedding::forward(const at::Tensor& indices) {
  return at::embedding(weight_(), indices);
}

RmsNorm::RmsNorm(int64_t width, double epsilon) : width_(width), epsilon_(epsilon) {
  AddParameter("weight", weight_, {width}, Init::Ones());
}

at::Tensor RmsNorm::forward(const at::Tensor& x) {
  at::Tensor wide = x.to(at::kFloat);
  at::Tensor scale = at::rsqrt(at::mean(wide.pow(2), {-1}, /*keepdim=*/true) + epsilon_);
  return (wide * scale).to(x.scalar_type()) * weight_();
}

SwiGlu::SwiGlu(int64_t width, int64_t hidden, Init in, Init out)
    : w1_(AddChild<Linear>("w1", width, hidden, in)),
      w2_(AddChild<Linear>("w2", hidden, width, out)),
      w3_(AddChild<Linear>("w3", width, hidden, out)) {}

at::Tensor SwiGlu::forward(const at::Tensor& x) { return w2_(at::silu(w1_(x)) * w3_(x)); }

}  // namespace gt::nn
