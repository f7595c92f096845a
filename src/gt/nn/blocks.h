// The blocks that language models are made of.
#pragma once

#include <optional>

#include "gt/nn/module.h"

namespace gt::nn {

// y = x W^T, without bias.
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, Init init);
  at::Tensor forward(const at::Tensor& x);
  at::Tensor weight() const { return weight_(); }

 private:
  Parameter weight_;
};

class Embedding : public Module {
 public:
  Embedding(int64_t count, int64_t width, Init init);
  at::Tensor forward(const at::Tensor& indices);
  at::Tensor weight() const { return weight_(); }
  // From now on the weight holds `count` rows from `first` on; other indices give zeros.
  void KeepRows(int64_t first, int64_t count) { kept_ = {first, count}; }

 private:
  Parameter weight_;
  struct Range {
    int64_t first, count;
  };
  std::optional<Range> kept_;
};

// x / rms(x) * weight over the last dimension, computed in float32 whatever the dtype of x. One
// kernel on GPUs.
class RmsNorm : public Module {
 public:
  RmsNorm(int64_t width, double epsilon);
  at::Tensor forward(const at::Tensor& x);

 private:
  Parameter weight_;
  double epsilon_;
};

// Zeroes a share of the elements while training and scales the others up, so that sums stay what they
// were on average. Draws from the rank's generator (torch_bridge/generator.h).
class Dropout : public Module {
 public:
  explicit Dropout(double share);
  at::Tensor forward(const at::Tensor& x);

 private:
  double share_;
};

// What follows attention in a block: one SwiGlu, or a mixture of experts.
class FeedForward : public Module {
 public:
  explicit FeedForward(std::source_location where = std::source_location::current())
      : Module(where) {}
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  // Weights that multiply one token.
  virtual int64_t ActiveParameters() const { return ParameterCount(*this); }
};

// w2(silu(w1 x) * w3 x)
class SwiGlu : public FeedForward {
 public:
  SwiGlu(int64_t width, int64_t hidden, Init in, Init out);
  at::Tensor forward(const at::Tensor& x) override;

 private:
  Ref<Linear> w1_, w2_, w3_;
};

}  // namespace gt::nn
