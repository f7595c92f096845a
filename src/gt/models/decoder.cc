#include "gt/models/decoder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "gt/base/error.h"
#include "gt/base/machine_memory.h"

namespace gt {

using nn::Init;

Init DepthScaledInit(int64_t layer) {
  return Init::TruncatedNormal(0.02 / std::sqrt(2.0 * static_cast<double>(layer + 1)));
}

Init HeadInit(int64_t width) {
  double deviation = 1.0 / std::sqrt(static_cast<double>(width));
  return Init::TruncatedNormal(deviation, 3 * deviation);
}

DecoderConfig DecoderFromHf(const HfConfig& hf, int64_t rotated_width) {
  if (hf.Find("quantization_config") != nullptr) {
    hf.Reject("quantization_config", "is set, but gt reads weights in bf16, fp16 and fp32 alone");
  }
  DecoderConfig config;
  config.vocab = hf.Int("vocab_size");
  config.width = hf.Int("hidden_size");
  config.layers = hf.Int("num_hidden_layers");
  config.norm_epsilon = hf.Number("rms_norm_eps", 1e-6);
  if (config.norm_epsilon < 0) hf.Reject("rms_norm_eps", "must not be negative");
  config.tied = hf.Bool("tie_word_embeddings", false);
  config.rope = hf.Rope();
  config.rotated_width = rotated_width;
  config.max_positions = hf.Int("max_position_embeddings");
  return config;
}

void ApplyOptions(const ModelOptions& options, DecoderConfig& config) {
  if (options.layers > 0) config.layers = options.layers;
  if (options.vocab > 0) config.vocab = options.vocab;
}

double LoadBalance(const ModelOptions& options, double flavors_own) {
  return options.load_balance < 0 ? flavors_own : options.load_balance;
}

TransformerBlock::TransformerBlock(std::shared_ptr<Attention> attention,
                                   std::shared_ptr<nn::FeedForward> feed_forward, int64_t width,
                                   double norm_epsilon)
    : moe_(dynamic_cast<nn::Moe*>(feed_forward.get())) {
  set_role(ModuleRole::kBlock);
  attention_ = nn::Ref<Attention>(register_module("attention", std::move(attention)));
  attention_norm_ = AddChild<nn::RmsNorm>("attention_norm", width, norm_epsilon);
  ffn_norm_ = AddChild<nn::RmsNorm>("ffn_norm", width, norm_epsilon);
  feed_forward_ = nn::Ref<nn::FeedForward>(
      register_module(moe_ == nullptr ? "feed_forward" : "moe", std::move(feed_forward)));
}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const nn::AttentionInputs& inputs) {
  auto dropped = [this](const at::Tensor& branch) { return dropout_ ? dropout_(branch) : branch; };
  at::Tensor h = x + dropped(attention_(attention_norm_(x), inputs));
  return h + dropped(feed_forward_(ffn_norm_(h)));
}

void TransformerBlock::AddDropout(double share) {
  dropout_ = AddChild<nn::Dropout>("dropout", share);
}

Decoder::Decoder(const DecoderConfig& config, const ModelOptions& options, Init embedding,
                 Init head, const BlockBuilder& block)
    : config_(config), mask_(options.attention.mask) {
  if (options.max_length > config.max_positions) {
    Fail(ErrorCode::kSequenceTooLong,
         "sequences of {} tokens were asked for, but the model was made for at most {}; lower "
         "--training.seq_len",
         options.max_length, config.max_positions);
  }
  tok_embeddings_ =
      AddChild<nn::Embedding>("tok_embeddings", config.vocab, config.width, embedding);
  auto layers = register_module("layers", std::make_shared<nn::Module>());
  for (int64_t i = 0; i < config.layers; ++i) {
    layers_.emplace_back(layers->register_module(std::to_string(i), block(i)));
    if (options.dropout > 0) layers_.back()->AddDropout(options.dropout);
  }
  norm_ = AddChild<nn::RmsNorm>("norm", config.width, config.norm_epsilon);
  if (!config.tied) {
    output_ = AddChild<nn::Linear>("output", config.width, config.vocab, head);
    output_->set_role(ModuleRole::kHead);
  }
  // The only tensor that is filled while a model is built.
  const double rope_bytes = 2.0 * sizeof(float) * static_cast<double>(options.max_length) *
                            static_cast<double>(config.rotated_width);  // with what it is made of
  if (rope_bytes > static_cast<double>(UsableMemory(TotalMemory()))) {
    Fail(ErrorCode::kDoesNotFit,
         "the rotary table for {} positions (--training.seq_len) and {} channels of each head does "
         "not fit this machine's memory",
         options.max_length, config.rotated_width);
  }
  AddBuffer("rope", rope_, nn::RopeTable(options.max_length, config.rotated_width, config.rope),
            nn::BufferKind::kTable);
  nn::NameModules(*this);
}

at::Tensor Decoder::Hidden(const ModelInputs& inputs) {
  nn::AttentionInputs attention;
  attention.rotation = at::index(rope_, {inputs.positions});
  if (mask_ == AttentionMask::kBlockCausal) {
    // A document begins wherever positions begin anew.
    attention.documents = at::cumsum(at::eq(inputs.positions, 0), 1, at::kInt);
  }
  attention.cache = inputs.cache;
  at::Tensor h = tok_embeddings_(inputs.tokens);
  for (const auto& layer : layers_) h = layer(h, attention);
  return norm_(h);
}

bool Decoder::UsesCache() const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [](const auto& layer) { return layer->attention().UsesCache(); });
}

at::Tensor Decoder::HeadWeight() const {
  return config_.tied ? tok_embeddings_->weight() : output_->weight();
}

void Decoder::BeforeUpdate(const SumOverRanks& sum) {
  std::vector<nn::Moe*> mixtures;
  for (const auto& layer : layers_) {
    if (layer->moe() != nullptr) mixtures.push_back(layer->moe());
  }
  if (mixtures.empty()) return;
  at::NoGradGuard no_gradients;
  // All layers in one exchange.
  std::vector<at::Tensor> counts;
  for (nn::Moe* moe : mixtures) counts.push_back(moe->tokens_per_expert());
  at::Tensor total = sum(at::stack(counts));
  for (size_t i = 0; i < mixtures.size(); ++i) {
    mixtures[i]->BalanceLoad(total[static_cast<int64_t>(i)]);
  }
}

std::vector<TensorSplit> Decoder::TensorSplits() const {
  using Weight = TensorSplit::Weight;
  using Sequence = TensorSplit::Sequence;
  std::vector<TensorSplit> splits = {
      {.module = "tok_embeddings",
       .weight = Weight::kRows,
       .units = config_.vocab,
       .unit = "tokens of the vocabulary",
       .output = Sequence::kReduceScattered},
      {"output", Weight::kRows, config_.vocab, "tokens of the vocabulary"}};
  AddTensorSplits(splits);
  if (int64_t width = FeedForwardWidth(); width > 0) {
    const char* unit = "channels of the feed-forward part";
    splits.push_back({.module = "layers.*.feed_forward", .input = Sequence::kGathered});
    splits.push_back({"layers.*.feed_forward.w1", Weight::kRows, width, unit});
    splits.push_back({"layers.*.feed_forward.w3", Weight::kRows, width, unit});
    splits.push_back({.module = "layers.*.feed_forward.w2",
                      .weight = Weight::kColumns,
                      .units = width,
                      .unit = unit,
                      .output = Sequence::kReduceScattered});
  }
  return splits;
}

int64_t Decoder::ActiveParameters() const {
  // Embedding lookups multiply nothing; the head does, even when it is the same matrix.
  int64_t active = config_.vocab * config_.width + nn::ParameterCount(*norm_);
  for (const auto& layer : layers_) {
    const nn::FeedForward& feed_forward = layer->feed_forward();
    active += nn::ParameterCount(*layer) - nn::ParameterCount(feed_forward) +
              feed_forward.ActiveParameters();
  }
  return active;
}

int64_t Decoder::FlopsPerToken(int64_t length) const {
  // 6 for every weight that multiplies a token, and the two products of attention, forward and
  // twice backward, with half of the pairs masked.
  int64_t pairs = 0;
  for (const auto& layer : layers_) pairs += layer->attention().PairWidth();
  return 6 * ActiveParameters() + 3 * length * pairs;
}

std::vector<HfTensor> Decoder::HfTensors() const {
  std::vector<HfTensor> tensors;
  int64_t width = config_.width;
  tensors.push_back({"model.embed_tokens.weight", {config_.vocab, width}, "tok_embeddings.weight"});
  for (int64_t i = 0; i < config_.layers; ++i) {
    std::string ours = "layers." + std::to_string(i) + ".";
    std::string theirs = "model." + ours;
    tensors.push_back({theirs + "input_layernorm.weight", {width}, ours + "attention_norm.weight"});
    tensors.push_back(
        {theirs + "post_attention_layernorm.weight", {width}, ours + "ffn_norm.weight"});
    AddHfLayer(i, ours, theirs, tensors);
  }
  tensors.push_back({"model.norm.weight", {width}, "norm.weight"});
  if (!config_.tied) tensors.push_back({"lm_head.weight", {config_.vocab, width}, "output.weight"});
  return tensors;
}

nlohmann::json Decoder::HfCommon(const char* model_type, const char* architecture) const {
  nlohmann::json config = {{"architectures", {architecture}},
                           {"model_type", model_type},
                           {"vocab_size", config_.vocab},
                           {"hidden_size", config_.width},
                           {"num_hidden_layers", config_.layers},
                           {"rms_norm_eps", config_.norm_epsilon},
                           {"tie_word_embeddings", config_.tied},
                           {"max_position_embeddings", config_.max_positions},
                           {"hidden_act", "silu"},
                           {"attention_bias", false}};
  WriteRope(config_.rope, config);
  return config;
}

void AddHfSwiGlu(const std::string& ours, const std::string& theirs, int64_t width, int64_t hidden,
                 std::vector<HfTensor>& tensors) {
  tensors.push_back({theirs + "gate_proj.weight", {hidden, width}, ours + "w1.weight"});
  tensors.push_back({theirs + "up_proj.weight", {hidden, width}, ours + "w3.weight"});
  tensors.push_back({theirs + "down_proj.weight", {width, hidden}, ours + "w2.weight"});
}

void AddHfExperts(const std::string& ours, const std::string& theirs, const nn::MoeConfig& moe,
                  std::vector<HfTensor>& tensors) {
  for (int64_t e = 0; e < moe.experts; ++e) {
    auto slice = [e](const at::Tensor& stacked) { return stacked.select(0, e); };
    std::string prefix = theirs + std::to_string(e) + ".";
    tensors.push_back({prefix + "gate_proj.weight", {moe.hidden, moe.width}, ours + "w1", slice});
    tensors.push_back({prefix + "up_proj.weight", {moe.hidden, moe.width}, ours + "w3", slice});
    tensors.push_back({prefix + "down_proj.weight", {moe.width, moe.hidden}, ours + "w2", slice});
  }
}

at::Tensor AsHalves(const at::Tensor& rows, int64_t dim) {
  return rows.unflatten(dim, {rows.size(dim) / 2, 2}).transpose(dim, dim + 1);
}

}  // namespace gt
