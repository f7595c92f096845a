// Llama 3: grouped-query attention with rotary positions, SwiGLU, RMSNorm before each part.
#pragma once

#include <string_view>
#include <vector>

#include "gt/models/model.h"
#include "gt/nn/blocks.h"
#include "gt/nn/rope.h"

namespace gt {

struct Llama3Config {
  int64_t vocab = 2048;
  int64_t width = 256;
  int64_t layers = 6;
  int64_t heads = 16;
  int64_t kv_heads = 16;
  int64_t ffn_width = 768;
  int64_t max_length = 2048;  // rows of the rotary table
  double rope_theta = 500000.0;
  nn::RopeScaling rope_scaling;
  double norm_epsilon = 1e-5;
};

class Llama3Attention : public nn::Module {
 public:
  Llama3Attention(const Llama3Config& config, nn::Init out);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& rope);

 private:
  int64_t kv_heads_, queries_per_kv_, head_width_;
  // Rows of wqkv stand in groups, one for each key/value head: its queries, its key, its value.
  // Splitting by heads (tensor parallelism) then splits the matrix into equal contiguous parts.
  nn::Ref<nn::Linear> wqkv_, wo_;
};

class Llama3Block : public nn::Module {
 public:
  Llama3Block(const Llama3Config& config, int64_t layer);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& rope);

 private:
  nn::Ref<Llama3Attention> attention_;
  nn::Ref<nn::RmsNorm> attention_norm_, ffn_norm_;
  nn::Ref<nn::SwiGlu> feed_forward_;
};

class Llama3 : public LanguageModel {
 public:
  explicit Llama3(const Llama3Config& config);
  at::Tensor forward(const at::Tensor& tokens) override;
  int64_t vocab_size() const override { return config_.vocab; }
  int64_t FlopsPerToken(int64_t length) const override;

 private:
  Llama3Config config_;
  nn::Ref<nn::Embedding> tok_embeddings_;
  std::vector<nn::Ref<Llama3Block>> layers_;
  nn::Ref<nn::RmsNorm> norm_;
  nn::Ref<nn::Linear> output_;
  at::Tensor rope_;
};

}  // namespace gt
