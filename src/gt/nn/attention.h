// The part of attention that all families share: queries meet keys, values are mixed. Which kernel
// does it depends on the configuration, the device and the widths, never on the model.
#pragma once

#include <memory>
#include <optional>

#include "gt/job/sections/attention_choice.h"
#include "gt/nn/flex_attention.h"
#include "gt/nn/key_value_cache.h"
#include "gt/nn/module.h"

namespace gt::nn {

struct AttentionConfig {
  AttentionBackend backend = AttentionBackend::kSdpa;
  AttentionMask mask = AttentionMask::kCausal;
};

// What attention needs besides its input; the same for all layers of a step.
struct AttentionInputs {
  at::Tensor rotation;   // complex64 [batch, length, rotated width / 2]
  at::Tensor documents;  // int32 [batch, length], for block-causal masks; undefined otherwise
  // Where keys and values of earlier tokens are, and those of these tokens go; null: there are none.
  // A row of the batch is then one document.
  KeyValueCache* cache = nullptr;

  template <typename Visit>
  void ForEachTensor(Visit&& visit) {
    visit(rotation);
    visit(documents);
  }
};

// Sequences that are spread over ranks. A sequence is cut into 2 * parts equal stretches, and rank r
// has stretch r and, after it, stretch 2 * parts - 1 - r: early tokens attend to few others and late
// ones to many, so every rank has equally much to do.
struct SequenceSharding {
  int64_t parts = 1;
  int64_t index = 0;
  // Concatenates the ranks' stretches along dimension 1, in the order of ranks.
  // Differentiable.
  Transform gather;
};

class DotProductAttention : public Module {
 public:
  DotProductAttention(const AttentionConfig& config, double scale);
  // Keys and values are gathered from now on; queries stay where they are.
  void ShardSequence(SequenceSharding spread);
  // [batch, length, heads, width]; key and value may have fewer heads, and value another width.
  at::Tensor forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionInputs& inputs);
  // Queries of a later pass, [batch, length, heads, width], over what `cache` holds of all positions:
  // keys and values as Extend returned them.
  at::Tensor OverSlots(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                       const KeyValueCache& cache) const;

 private:
  at::Tensor OverRanks(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value);

  AttentionConfig config_;
  double scale_;
  std::optional<FlexAttention> flex_;
  std::optional<SequenceSharding> spread_;
};

}  // namespace gt::nn
