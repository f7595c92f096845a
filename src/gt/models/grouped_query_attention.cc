#include "gt/models/grouped_query_attention.h"

#include <ATen/ATen.h>

#include <cmath>

namespace gt {

GroupedQueryAttention::GroupedQueryAttention(const GroupedQueryConfig& config,
                                             const nn::AttentionConfig& attention, nn::Init in,
                                             nn::Init out)
    : config_(config) {
  int64_t rows = (config.heads + 2 * config.kv_heads) * config.head_width;
  wqkv_ = AddChild<nn::Linear>("wqkv", config.width, rows, in);
  wo_ = AddChild<nn::Linear>("wo", config.heads * config.head_width, config.width, out);
  if (config.qk_norm_epsilon) {
    q_norm_ = AddChild<nn::RmsNorm>("q_norm", config.head_width, *config.qk_norm_epsilon);
    k_norm_ = AddChild<nn::RmsNorm>("k_norm", config.head_width, *config.qk_norm_epsilon);
  }
  inner_ = AddChild<nn::DotProductAttention>(
      "inner_attention", attention, 1.0 / std::sqrt(static_cast<double>(config.head_width)));
}

at::Tensor GroupedQueryAttention::forward(const at::Tensor& x, const nn::AttentionInputs& inputs) {
  int64_t group = config_.heads / config_.kv_heads, head_width = config_.head_width;
  at::Tensor qkv = wqkv_(x);
  c10::SymInt batch = qkv.sym_size(0), length = qkv.sym_size(1);
  // The heads of this rank: all of them, unless the matrix is sharded.
  c10::SymInt kv_heads = qkv.sym_size(2) / ((group + 2) * head_width);
  at::Tensor grouped = qkv.view_symint({batch, length, kv_heads, group + 2, head_width});
  std::vector<at::Tensor> parts = grouped.split_with_sizes({group, 1, 1}, /*dim=*/3);
  at::Tensor query = parts[0], key = parts[1].squeeze(3), value = parts[2].squeeze(3);
  if (q_norm_) {
    query = q_norm_(query);
    key = k_norm_(key);
  }
  query = nn::ApplyRope(query, inputs.rotation)
              .reshape_symint({batch, length, kv_heads * group, head_width});
  key = nn::ApplyRope(key, inputs.rotation);
  at::Tensor attended = inner_(query, key, value, inputs);
  return wo_(attended.reshape_symint({batch, length, kv_heads * (group * head_width)}));
}

void AddGroupedQuerySplits(const GroupedQueryConfig& config, std::vector<TensorSplit>& splits) {
  using Weight = TensorSplit::Weight;
  using Sequence = TensorSplit::Sequence;
  constexpr const char* kUnit = "key/value heads";
  splits.push_back({.module = "layers.*.attention", .input = Sequence::kGathered});
  splits.push_back({"layers.*.attention.wqkv", Weight::kRows, config.kv_heads, kUnit});
  splits.push_back({.module = "layers.*.attention.wo",
                    .weight = Weight::kColumns,
                    .units = config.kv_heads,
                    .unit = kUnit,
                    .output = Sequence::kReduceScattered});
}

GroupedQueryConfig GroupedQueryFromHf(const HfConfig& hf) {
  hf.RequireFalse("attention_bias");
  GroupedQueryConfig config;
  config.width = hf.Int("hidden_size");
  config.heads = hf.Int("num_attention_heads");
  config.kv_heads = hf.Int("num_key_value_heads", config.heads);
  if (config.kv_heads == 0 || config.heads % config.kv_heads != 0) {
    hf.Reject("num_key_value_heads", "must divide num_attention_heads");
  }
  if (hf.Find("head_dim") == nullptr && config.width % config.heads != 0) {
    hf.Reject("num_attention_heads", "must divide hidden_size when there is no head_dim");
  }
  config.head_width = hf.Int("head_dim", config.width / config.heads);
  if (config.head_width < 2 || config.head_width % 2 != 0) {
    hf.Reject("head_dim", "must be even: positions turn pairs of channels");
  }
  return config;
}

void AddHfGroupedQuery(const GroupedQueryConfig& config, const std::string& ours,
                       const std::string& theirs, std::vector<HfTensor>& tensors) {
  int64_t group = config.heads / config.kv_heads, kv_heads = config.kv_heads;
  int64_t head_width = config.head_width;
  auto add = [&](const char* name, int64_t heads, int64_t first, int64_t count, bool rotary) {
    auto view = [=](const at::Tensor& wqkv) {
      at::Tensor rows = wqkv.view({kv_heads, group + 2, head_width, wqkv.size(1)});
      rows = rows.narrow(1, first, count);
      return rotary ? AsHalves(rows, 2) : rows;
    };
    tensors.push_back(
        {theirs + name, {heads * head_width, config.width}, ours + "wqkv.weight", view});
  };
  add("q_proj.weight", config.heads, 0, group, true);
  add("k_proj.weight", kv_heads, group, 1, true);
  add("v_proj.weight", kv_heads, group + 1, 1, false);
  tensors.push_back(
      {theirs + "o_proj.weight", {config.width, config.heads * head_width}, ours + "wo.weight"});
  if (!config.qk_norm_epsilon) return;
  for (const char* name : {"q_norm.weight", "k_norm.weight"}) {
    tensors.push_back({theirs + name, {head_width}, ours + name, [](const at::Tensor& weight) {
                         return AsHalves(weight, 0);
                       }});
  }
}

}  // namespace gt
