// Llama 3: grouped-query attention with rotary positions, SwiGLU, RMSNorm before each part.
#include "gt/models/grouped_query_attention.h"

namespace gt::llama3 {
namespace {

using nn::Init;

struct Llama3Config {
  DecoderConfig decoder;
  GroupedQueryConfig attention;
  int64_t ffn_width = 768;
};

class Llama3 : public Decoder {
 public:
  Llama3(const Llama3Config& config, const ModelOptions& options)
      : Decoder(config.decoder, options, Init::Normal(1.0), HeadInit(config.decoder.width),
                [&](int64_t layer) { return Block(config, options, layer); }),
        config_(config) {}

  nlohmann::json HfConfigJson() const override {
    nlohmann::json json = HfCommon("llama", "LlamaForCausalLM");
    json["num_attention_heads"] = config_.attention.heads;
    json["num_key_value_heads"] = config_.attention.kv_heads;
    json["head_dim"] = config_.attention.head_width;
    json["intermediate_size"] = config_.ffn_width;
    json["mlp_bias"] = false;
    return json;
  }

 private:
  static std::shared_ptr<TransformerBlock> Block(const Llama3Config& config,
                                                 const ModelOptions& options, int64_t layer) {
    Init in = Init::TruncatedNormal(0.02), out = DepthScaledInit(layer);
    int64_t width = config.decoder.width;
    return std::make_shared<TransformerBlock>(
        std::make_shared<GroupedQueryAttention>(config.attention, options.attention, in, out),
        std::make_shared<nn::SwiGlu>(width, config.ffn_width, in, out), width,
        config.decoder.norm_epsilon);
  }

  void AddTensorSplits(std::vector<TensorSplit>& splits) const override {
    AddGroupedQuerySplits(config_.attention, splits);
  }
  int64_t FeedForwardWidth() const override { return config_.ffn_width; }

  void AddHfLayer(int64_t, const std::string& ours, const std::string& theirs,
                  std::vector<HfTensor>& tensors) const override {
    AddHfGroupedQuery(config_.attention, ours + "attention.", theirs + "self_attn.", tensors);
    AddHfSwiGlu(ours + "feed_forward.", theirs + "mlp.", config_.decoder.width, config_.ffn_width,
                tensors);
  }

  Llama3Config config_;
};

struct Flavor {
  const char* name;
  int64_t vocab, width, layers, heads, kv_heads, ffn_width;
  double rope_factor;
  bool tied;
};

constexpr Flavor kFlavors[] = {
    // For tests: small, but with grouped heads, so that no path is left out.
    {"tiny", 256, 32, 2, 4, 2, 96, 8, false},
    {"debugmodel", 2048, 256, 6, 16, 16, 768, 8, false},
    {"1B", 128256, 2048, 16, 32, 8, 8192, 32, true},
    {"3B", 128256, 3072, 28, 24, 8, 8192, 32, true},
    {"8B", 128256, 4096, 32, 32, 8, 14336, 8, false},
    {"70B", 128256, 8192, 80, 64, 8, 28672, 8, false},
    {"405B", 128256, 16384, 126, 128, 8, 53248, 8, false},
};

Llama3Config FromFlavor(const Flavor& flavor) {
  Llama3Config config;
  config.decoder.vocab = flavor.vocab;
  config.decoder.width = flavor.width;
  config.decoder.layers = flavor.layers;
  config.decoder.tied = flavor.tied;
  config.decoder.rope = {500000.0, nn::Llama3Scaling{.factor = flavor.rope_factor}};
  config.attention = {flavor.width, flavor.heads, flavor.kv_heads, flavor.width / flavor.heads, {}};
  config.decoder.rotated_width = config.attention.head_width;
  config.ffn_width = flavor.ffn_width;
  return config;
}

ModelPtr Build(Llama3Config config, const ModelOptions& options) {
  ApplyOptions(options, config.decoder);
  return std::make_shared<Llama3>(config, options);
}

ModelPtr FromHf(const HfConfig& hf, const ModelOptions& options) {
  hf.RequireFalse("mlp_bias");
  hf.RequireSilu();
  Llama3Config config;
  config.attention = GroupedQueryFromHf(hf);
  config.ffn_width = hf.Int("intermediate_size");
  config.decoder = DecoderFromHf(hf, config.attention.head_width);
  return Build(config, options);
}

const ModelRegistration kRegistration({
    .name = "llama3",
    .source = "Llama 3.1 and 3.2 of Meta",
    .flavors = FlavorNames(kFlavors),
    .build =
        [](const std::string& name, const ModelOptions& options) {
          return Build(FromFlavor(FindFlavor(kFlavors, name)), options);
        },
    .hf_types = {"llama"},
    .build_from_hf = FromHf,
});

}  // namespace
}  // namespace gt::llama3
