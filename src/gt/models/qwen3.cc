// Qwen 3, dense and mixture of experts: as Llama 3, with queries and keys normed per head, heads of
// a width of their own, and in the MoE models a softmax router without shared experts.
#include <algorithm>
#include <cmath>

#include "gt/models/grouped_query_attention.h"

namespace gt::qwen3 {
namespace {

using nn::Init;

struct Qwen3Config {
  DecoderConfig decoder;
  GroupedQueryConfig attention;
  int64_t ffn_width = 3072;                // of dense layers
  nn::MoeConfig moe = {.experts = 0};      // no experts: every layer is dense
  int64_t sparse_step = 1;                 // layer i is sparse when i + 1 is a multiple
  std::vector<int64_t> dense_layers = {};  // and not one of these

  bool IsSparse(int64_t layer) const {
    bool listed = std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end();
    return moe.experts > 0 && !listed && (layer + 1) % sparse_step == 0;
  }
};

class Qwen3 : public Decoder {
 public:
  Qwen3(const Qwen3Config& config, const ModelOptions& options)
      : Decoder(config.decoder, options, Init::Normal(0.02), Init::Normal(0.02),
                [&](int64_t layer) { return Block(config, options, layer); }),
        config_(config) {}

  nlohmann::json HfConfigJson() const override {
    bool sparse = config_.moe.experts > 0;
    nlohmann::json json = HfCommon(sparse ? "qwen3_moe" : "qwen3",
                                   sparse ? "Qwen3MoeForCausalLM" : "Qwen3ForCausalLM");
    json["num_attention_heads"] = config_.attention.heads;
    json["num_key_value_heads"] = config_.attention.kv_heads;
    json["head_dim"] = config_.attention.head_width;
    json["intermediate_size"] = config_.ffn_width;
    json["use_sliding_window"] = false;
    if (sparse) {
      json["num_experts"] = config_.moe.experts;
      json["num_experts_per_tok"] = config_.moe.top_k;
      json["moe_intermediate_size"] = config_.moe.hidden;
      json["norm_topk_prob"] = config_.moe.normalize;
      json["decoder_sparse_step"] = config_.sparse_step;
      json["mlp_only_layers"] = config_.dense_layers;
    }
    return json;
  }

 private:
  static std::shared_ptr<TransformerBlock> Block(const Qwen3Config& config,
                                                 const ModelOptions& options, int64_t layer) {
    Init in = Init::Normal(0.02);
    Init out = Init::Normal(0.02 / std::sqrt(2.0 * static_cast<double>(config.decoder.layers)));
    int64_t width = config.decoder.width;
    std::shared_ptr<nn::FeedForward> feed_forward;
    if (config.IsSparse(layer)) {
      feed_forward =
          std::make_shared<nn::Moe>(config.moe, nn::MoeInits{.router = in, .in = in, .out = out});
    } else {
      feed_forward = std::make_shared<nn::SwiGlu>(width, config.ffn_width, in, out);
    }
    return std::make_shared<TransformerBlock>(
        std::make_shared<GroupedQueryAttention>(config.attention, options.attention, in, out),
        std::move(feed_forward), width, config.decoder.norm_epsilon);
  }

  void AddTensorSplits(std::vector<TensorSplit>& splits) const override {
    AddGroupedQuerySplits(config_.attention, splits);
  }
  int64_t FeedForwardWidth() const override {
    for (int64_t i = 0; i < config_.decoder.layers; ++i) {
      if (!config_.IsSparse(i)) return config_.ffn_width;
    }
    return 0;
  }

  void AddHfLayer(int64_t layer, const std::string& ours, const std::string& theirs,
                  std::vector<HfTensor>& tensors) const override {
    AddHfGroupedQuery(config_.attention, ours + "attention.", theirs + "self_attn.", tensors);
    if (!config_.IsSparse(layer)) {
      AddHfSwiGlu(ours + "feed_forward.", theirs + "mlp.", config_.decoder.width, config_.ffn_width,
                  tensors);
      return;
    }
    const nn::MoeConfig& moe = config_.moe;
    tensors.push_back(
        {theirs + "mlp.gate.weight", {moe.experts, moe.width}, ours + "moe.router.gate.weight"});
    AddHfExperts(ours + "moe.experts.", theirs + "mlp.experts.", moe, tensors);
  }

  Qwen3Config config_;
};

struct Flavor {
  const char* name;
  int64_t vocab, width, layers, heads, kv_heads, head_width, ffn_width;
  bool tied;
  int64_t experts = 0, expert_width = 0, top_k = 0;
};

constexpr Flavor kFlavors[] = {
    {"tiny", 256, 32, 2, 4, 2, 16, 96, true},
    {"tiny_moe", 256, 32, 2, 4, 2, 16, 96, false, 8, 24, 2},
    {"debugmodel", 2048, 256, 8, 16, 8, 128, 3072, true},
    {"debugmodel_moe", 2048, 256, 8, 16, 8, 128, 3072, false, 64, 768, 8},
    {"0.6B", 151936, 1024, 28, 16, 8, 128, 3072, true},
    {"1.7B", 151936, 2048, 28, 16, 8, 128, 6144, true},
    {"4B", 151936, 2560, 36, 32, 8, 128, 9728, true},
    {"8B", 151936, 4096, 36, 32, 8, 128, 12288, false},
    {"14B", 151936, 5120, 40, 40, 8, 128, 17408, false},
    {"32B", 151936, 5120, 64, 64, 8, 128, 25600, false},
    {"30B-A3B", 151936, 2048, 48, 32, 4, 128, 6144, false, 128, 768, 8},
    {"235B-A22B", 151936, 4096, 94, 64, 4, 128, 12288, false, 128, 1536, 8},
};

Qwen3Config FromFlavor(const Flavor& flavor) {
  Qwen3Config config;
  config.decoder.vocab = flavor.vocab;
  config.decoder.width = flavor.width;
  config.decoder.layers = flavor.layers;
  config.decoder.tied = flavor.tied;
  config.decoder.norm_epsilon = 1e-6;
  config.decoder.rope = {1e6, {}};
  config.decoder.rotated_width = flavor.head_width;
  config.decoder.max_positions = 40960;
  config.attention = {flavor.width, flavor.heads, flavor.kv_heads, flavor.head_width, 1e-6};
  config.ffn_width = flavor.ffn_width;
  config.moe = {.width = flavor.width,
                .experts = flavor.experts,
                .hidden = flavor.expert_width,
                .top_k = flavor.top_k,
                .normalize = true};
  return config;
}

ModelPtr Build(Qwen3Config config, const ModelOptions& options) {
  ApplyOptions(options, config.decoder);
  config.moe.force_balance = options.force_balance;
  config.moe.load_balance = LoadBalance(options, 0.0);
  config.moe.bias = config.moe.load_balance > 0;
  return std::make_shared<Qwen3>(config, options);
}

void ReadMoe(const HfConfig& hf, Qwen3Config& config) {
  config.moe.width = config.decoder.width;
  // Older files say num_experts, newer ones num_local_experts.
  config.moe.experts =
      hf.Find("num_experts") != nullptr ? hf.Int("num_experts") : hf.Int("num_local_experts");
  config.moe.top_k = hf.Int("num_experts_per_tok");
  if (config.moe.top_k > config.moe.experts) {
    hf.Reject("num_experts_per_tok", "is larger than the number of experts");
  }
  config.moe.hidden = hf.Int("moe_intermediate_size");
  config.moe.normalize = hf.Bool("norm_topk_prob", false);
  config.sparse_step = hf.Int("decoder_sparse_step", 1);
  if (config.sparse_step < 1) hf.Reject("decoder_sparse_step", "must be at least 1");
  if (const nlohmann::json* layers = hf.Find("mlp_only_layers")) {
    if (!layers->is_array()) hf.Reject("mlp_only_layers", "must be a list of layer numbers");
    for (const auto& layer : *layers) {
      if (!layer.is_number_integer())
        hf.Reject("mlp_only_layers", "must be a list of layer numbers");
      config.dense_layers.push_back(layer.get<int64_t>());
    }
  }
}

ModelPtr FromHf(const HfConfig& hf, const ModelOptions& options) {
  hf.RequireSilu();
  hf.RequireFalse("use_sliding_window");
  Qwen3Config config;
  config.attention = GroupedQueryFromHf(hf);
  config.attention.qk_norm_epsilon = hf.Number("rms_norm_eps", 1e-6);
  config.decoder = DecoderFromHf(hf, config.attention.head_width);
  config.ffn_width = hf.Int("intermediate_size");
  if (hf.String("model_type") == "qwen3_moe") ReadMoe(hf, config);
  return Build(config, options);
}

const ModelRegistration kRegistration({
    .name = "qwen3",
    .source = "Qwen 3 of Alibaba, dense and mixture of experts",
    .flavors = FlavorNames(kFlavors),
    .build =
        [](const std::string& name, const ModelOptions& options) {
          return Build(FromFlavor(FindFlavor(kFlavors, name)), options);
        },
    .hf_types = {"qwen3", "qwen3_moe"},
    .build_from_hf = FromHf,
});

}  // namespace
}  // namespace gt::qwen3
