// The part of attention that all families share: queries meet keys, values are mixed. Which kernel
// does it depends on the configuration, the device and the widths, never on the model.
#pragma once

#include <memory>
#include <optional>

#include "gt/config/config.h"
#include "gt/nn/flex_attention.h"
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
};

class DotProductAttention : public Module {
 public:
  DotProductAttention(const AttentionConfig& config, double scale);
  // [batch, length, heads, width]; key and value may have fewer heads, and value another width.
  at::Tensor forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionInputs& inputs);

 private:
  AttentionConfig config_;
  double scale_;
  std::optional<FlexAttention> flex_;
};

}  // namespace gt::nn
