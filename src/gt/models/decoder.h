// The skeleton that all families here share: embedding, a stack of blocks, a norm, a head. A family
// says what its attention is, what follows it, and how its tensors are called in Hugging Face
// checkpoints.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gt/base/error.h"
#include "gt/models/model.h"
#include "gt/nn/blocks.h"
#include "gt/nn/moe.h"
#include "gt/nn/rope.h"

namespace gt {

// Attention of one block: from [batch, length, width] to the same.
class Attention : public nn::Module {
 public:
  explicit Attention(std::source_location where = std::source_location::current())
      : nn::Module(where) {
    set_role(ModuleRole::kAttention);
  }
  virtual at::Tensor forward(const at::Tensor& x, const nn::AttentionInputs& inputs) = 0;
  // Whether forward attends to what inputs.cache holds of earlier passes and adds its own, as
  // DotProductAttention does by itself.
  virtual bool UsesCache() const { return false; }
  // Channels of all heads' keys plus those of their values: what a pair of positions costs.
  virtual int64_t PairWidth() const = 0;
};

// x + attention(norm(x)), then h + feed_forward(norm(h)). The feed-forward part is called `moe` when
// it is a mixture of experts.
class TransformerBlock : public nn::Module {
 public:
  TransformerBlock(std::shared_ptr<Attention> attention,
                   std::shared_ptr<nn::FeedForward> feed_forward, int64_t width,
                   double norm_epsilon);
  at::Tensor forward(const at::Tensor& x, const nn::AttentionInputs& inputs);
  // From now on training drops this share of what attention and feed-forward add.
  void AddDropout(double share);

  const Attention& attention() const { return *attention_; }
  const nn::FeedForward& feed_forward() const { return *feed_forward_; }
  nn::Moe* moe() const { return moe_; }  // null for a dense block

 private:
  nn::Ref<Attention> attention_;
  nn::Ref<nn::RmsNorm> attention_norm_, ffn_norm_;
  nn::Ref<nn::FeedForward> feed_forward_;
  nn::Ref<nn::Dropout> dropout_;  // empty: nothing is dropped
  nn::Moe* moe_;
};

struct DecoderConfig {
  int64_t vocab = 2048;
  int64_t width = 256;
  int64_t layers = 6;
  double norm_epsilon = 1e-5;
  bool tied = false;  // the head is the embedding
  nn::RopeConfig rope;
  int64_t rotated_width = 16;      // channels of a head that positions turn
  int64_t max_positions = 131072;  // published limit on the length
};

class Decoder : public LanguageModel {
 public:
  using BlockBuilder = std::function<std::shared_ptr<TransformerBlock>(int64_t layer)>;
  Decoder(const DecoderConfig& config, const ModelOptions& options, nn::Init embedding,
          nn::Init head, const BlockBuilder& block);

  at::Tensor Hidden(const ModelInputs& inputs) override;
  bool UsesCache() const override;
  at::Tensor HeadWeight() const override;
  int64_t vocab_size() const override { return config_.vocab; }
  int64_t FlopsPerToken(int64_t length) const override;
  int64_t ActiveParameters() const override;
  void BeforeUpdate(const SumOverRanks& sum) override;
  std::vector<TensorSplit> TensorSplits() const override;
  std::vector<HfTensor> HfTensors() const override;

 protected:
  const DecoderConfig& decoder_config() const { return config_; }
  const TransformerBlock& block(int64_t layer) const {
    return *layers_[static_cast<size_t>(layer)];
  }
  // Tensors of one layer's attention and feed-forward part; `ours` and `theirs` end in a dot.
  virtual void AddHfLayer(int64_t layer, const std::string& ours, const std::string& theirs,
                          std::vector<HfTensor>& tensors) const = 0;
  // Of the parts specific to a family: attention. Feed-forward parts are the same everywhere.
  virtual void AddTensorSplits(std::vector<TensorSplit>& splits) const = 0;
  // The width of dense feed-forward parts; 0 when no layer has one.
  virtual int64_t FeedForwardWidth() const = 0;
  // The keys of config.json that all families have.
  nlohmann::json HfCommon(const char* model_type, const char* architecture) const;

 private:
  DecoderConfig config_;
  AttentionMask mask_;
  nn::Ref<nn::Embedding> tok_embeddings_;
  std::vector<nn::Ref<TransformerBlock>> layers_;
  nn::Ref<nn::RmsNorm> norm_;
  nn::Ref<nn::Linear> output_;  // empty when tied
  at::Tensor rope_;
};

// Outputs that are added to the residual stream start smaller the deeper they are, so that the
// stream does not grow.
nn::Init DepthScaledInit(int64_t layer);
// Of a head that reads `width` channels.
nn::Init HeadInit(int64_t width);

// The keys of config.json that all families have. `rotated_width`: channels of a head that positions
// turn.
DecoderConfig DecoderFromHf(const HfConfig& hf, int64_t rotated_width);

// Families keep their flavors in a table whose entries have a name.
template <typename Flavor, size_t kCount>
std::vector<std::string> FlavorNames(const Flavor (&flavors)[kCount]) {
  std::vector<std::string> names;
  for (const Flavor& flavor : flavors) names.emplace_back(flavor.name);
  return names;
}
template <typename Flavor, size_t kCount>
const Flavor& FindFlavor(const Flavor (&flavors)[kCount], std::string_view name) {
  for (const Flavor& flavor : flavors) {
    if (flavor.name == name) return flavor;
  }
  Fail(ErrorCode::kUnknownModel, "there is no flavor '{}'", name);
}

// Options of the job that replace the flavor's own settings.
void ApplyOptions(const ModelOptions& options, DecoderConfig& config);
double LoadBalance(const ModelOptions& options, double flavors_own);

// Tensors of a SwiGlu and of stacked experts, as all families here name them.
void AddHfSwiGlu(const std::string& ours, const std::string& theirs, int64_t width, int64_t hidden,
                 std::vector<HfTensor>& tensors);
void AddHfExperts(const std::string& ours, const std::string& theirs, const nn::MoeConfig& moe,
                  std::vector<HfTensor>& tensors);

// A view of rotary rows for checkpoints that pair channel i with i + width / 2: the last dimension
// but `trailing` others is [width] in our order of neighbouring pairs and becomes [2, width / 2].
at::Tensor AsHalves(const at::Tensor& rows, int64_t dim);

}  // namespace gt
