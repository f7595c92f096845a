#include "gt/models/llama3.h"

#include <ATen/ATen.h>

#include <cmath>

namespace gt {
namespace {

using nn::Init;

// Outputs that are added to the residual stream start smaller the deeper they are, so that the
// stream does not grow.
Init ResidualInit(int64_t layer) {
  return Init::TruncatedNormal(0.02 / std::sqrt(2.0 * static_cast<double>(layer + 1)));
}

}  // namespace

Llama3Attention::Llama3Attention(const Llama3Config& config, Init out)
    : kv_heads_(config.kv_heads),
      queries_per_kv_(config.heads / config.kv_heads),
      head_width_(config.width / config.heads) {
  int64_t rows = kv_heads_ * (queries_per_kv_ + 2) * head_width_;
  wqkv_ = AddChild<nn::Linear>("wqkv", config.width, rows, Init::TruncatedNormal(0.02));
  wo_ = AddChild<nn::Linear>("wo", config.heads * head_width_, config.width, out);
}

at::Tensor Llama3Attention::forward(const at::Tensor& x, const at::Tensor& rope) {
  c10::SymInt batch = x.sym_size(0), length = x.sym_size(1);
  int64_t heads = kv_heads_ * queries_per_kv_;
  at::Tensor grouped =
      wqkv_(x).view_symint({batch, length, kv_heads_, queries_per_kv_ + 2, head_width_});
  std::vector<at::Tensor> parts = grouped.split_with_sizes({queries_per_kv_, 1, 1}, /*dim=*/3);
  at::Tensor query = parts[0].reshape_symint({batch, length, heads, head_width_});
  at::Tensor key = parts[1].squeeze(3), value = parts[2].squeeze(3);
  query = nn::ApplyRope(query, rope);
  key = nn::ApplyRope(key, rope);
  auto for_all_queries = [&](const at::Tensor& shared) {
    if (queries_per_kv_ == 1) return shared;
    return shared.unsqueeze(3)
        .expand_symint({batch, length, kv_heads_, queries_per_kv_, head_width_})
        .reshape_symint({batch, length, heads, head_width_});
  };
  at::Tensor attended = at::scaled_dot_product_attention(
      query.transpose(1, 2), for_all_queries(key).transpose(1, 2),
      for_all_queries(value).transpose(1, 2), /*attn_mask=*/{}, /*dropout_p=*/0.0,
      /*is_causal=*/true);
  return wo_(attended.transpose(1, 2).reshape_symint({batch, length, heads * head_width_}));
}

Llama3Block::Llama3Block(const Llama3Config& config, int64_t layer) {
  Init out = ResidualInit(layer);
  attention_ = AddChild<Llama3Attention>("attention", config, out);
  attention_norm_ = AddChild<nn::RmsNorm>("attention_norm", config.width, config.norm_epsilon);
  ffn_norm_ = AddChild<nn::RmsNorm>("ffn_norm", config.width, config.norm_epsilon);
  feed_forward_ = AddChild<nn::SwiGlu>("feed_forward", config.width, config.ffn_width,
                                       Init::TruncatedNormal(0.02), out);
}

at::Tensor Llama3Block::forward(const at::Tensor& x, const at::Tensor& rope) {
  at::Tensor h = x + attention_(attention_norm_(x), rope);
  return h + feed_forward_(ffn_norm_(h));
}

Llama3::Llama3(const Llama3Config& config) : config_(config) {
  tok_embeddings_ =
      AddChild<nn::Embedding>("tok_embeddings", config.vocab, config.width, Init::Normal(1.0));
  auto layers = register_module("layers", std::make_shared<nn::Module>());
  for (int64_t i = 0; i < config.layers; ++i) {
    auto block = std::make_shared<Llama3Block>(config, i);
    layers_.emplace_back(layers->register_module(std::to_string(i), block));
  }
  norm_ = AddChild<nn::RmsNorm>("norm", config.width, config.norm_epsilon);
  double deviation = 1.0 / std::sqrt(static_cast<double>(config.width));
  output_ = AddChild<nn::Linear>("output", config.width, config.vocab,
                                 Init::TruncatedNormal(deviation, 3 * deviation));
  int64_t head_width = config.width / config.heads;
  AddBuffer("rope", rope_,
            nn::RopeTable(config.max_length, head_width, config.rope_theta, config.rope_scaling));
  nn::NameModules(*this);
}

at::Tensor Llama3::forward(const at::Tensor& tokens) {
  at::Tensor rope = rope_.slice_symint(0, 0, tokens.sym_size(1));
  at::Tensor h = tok_embeddings_(tokens);
  for (const auto& layer : layers_) h = layer(h, rope);
  return output_(norm_(h));
}

int64_t Llama3::FlopsPerToken(int64_t length) const {
  // 6 for every weight that multiplies a token (embedding lookups multiply nothing), and the two
  // products of attention with half of the scores masked: 6 * length * width a layer instead of 12.
  int64_t weights = nn::ParameterCount(*this) - config_.vocab * config_.width;
  return 6 * weights + 6 * config_.layers * length * config_.width;
}

}  // namespace gt
