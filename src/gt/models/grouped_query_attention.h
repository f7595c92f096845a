// Attention of Llama 3 and Qwen 3: several query heads share a key/value head, positions turn all
// channels, and queries and keys may be normed per head first.
#pragma once

#include <optional>

#include "gt/models/decoder.h"

namespace gt {

struct GroupedQueryConfig {
  int64_t width = 256;
  int64_t heads = 16;
  int64_t kv_heads = 16;
  int64_t head_width = 16;
  std::optional<double> qk_norm_epsilon = {};  // none: not normed
};

class GroupedQueryAttention : public Attention {
 public:
  GroupedQueryAttention(const GroupedQueryConfig& config, const nn::AttentionConfig& attention,
                        nn::Init in, nn::Init out);
  at::Tensor forward(const at::Tensor& x, const nn::AttentionInputs& inputs) override;
  bool UsesCache() const override { return true; }
  int64_t PairWidth() const override { return 2 * config_.heads * config_.head_width; }

 private:
  GroupedQueryConfig config_;
  // Rows of wqkv are in groups, one for each key/value head: its queries, its key, its value.
  // Splitting by heads (tensor parallelism) then splits the matrix into equal contiguous parts.
  nn::Ref<nn::Linear> wqkv_, wo_;
  nn::Ref<nn::RmsNorm> q_norm_, k_norm_;
  nn::Ref<nn::DotProductAttention> inner_;
};

// Fails for head counts that do not divide.
GroupedQueryConfig GroupedQueryFromHf(const HfConfig& hf);

// How tensor parallelism shards it: by key/value heads and the queries that read them.
void AddGroupedQuerySplits(const GroupedQueryConfig& config, std::vector<TensorSplit>& splits);

// The checkpoint's q_proj, k_proj, v_proj and o_proj. Its rotary channels are paired in halves.
void AddHfGroupedQuery(const GroupedQueryConfig& config, const std::string& ours,
                       const std::string& theirs, std::vector<HfTensor>& tensors);

}  // namespace gt
