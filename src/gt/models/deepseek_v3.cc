// DeepSeek-V3: multi-head latent attention (keys and values are expanded from a small latent; only a
// part of each head carries positions), the first layers dense, then mixtures of many small experts
// with shared ones.
#include <ATen/ATen.h>

#include <cmath>
#include <numeric>
#include <utility>

#include "gt/models/decoder.h"

namespace gt::deepseek_v3 {
namespace {

using nn::Init;

struct LatentConfig {
  int64_t width = 256;
  int64_t heads = 16;
  int64_t q_lora_rank = 0;  // 0: queries are projected directly from the input
  int64_t kv_lora_rank = 512;
  int64_t nope_width = 128;  // channels of a query and key head without positions
  int64_t rope_width = 64;   // ... and with
  int64_t value_width = 128;
  double norm_epsilon = 1e-5;   // of the latents
  double softmax_factor = 1.0;  // on the usual scale, for stretched positions

  int64_t query_width() const { return nope_width + rope_width; }
};

class LatentAttention : public Attention {
 public:
  LatentAttention(const LatentConfig& config, const nn::AttentionConfig& attention, Init in,
                  Init out)
      : config_(config) {
    int64_t query_rows = config.heads * config.query_width();
    if (config.q_lora_rank == 0) {
      wq_ = AddChild<nn::Linear>("wq", config.width, query_rows, in);
    } else {
      wq_a_ = AddChild<nn::Linear>("wq_a", config.width, config.q_lora_rank, in);
      q_norm_ = AddChild<nn::RmsNorm>("q_norm", config.q_lora_rank, config.norm_epsilon);
      wq_b_ = AddChild<nn::Linear>("wq_b", config.q_lora_rank, query_rows, in);
    }
    wkv_a_ =
        AddChild<nn::Linear>("wkv_a", config.width, config.kv_lora_rank + config.rope_width, in);
    kv_norm_ = AddChild<nn::RmsNorm>("kv_norm", config.kv_lora_rank, config.norm_epsilon);
    wkv_b_ = AddChild<nn::Linear>("wkv_b", config.kv_lora_rank,
                                  config.heads * (config.nope_width + config.value_width), in);
    wo_ = AddChild<nn::Linear>("wo", config.heads * config.value_width, config.width, out);
    double scale = config.softmax_factor / std::sqrt(static_cast<double>(config.query_width()));
    inner_ = AddChild<nn::DotProductAttention>("inner_attention", attention, scale);
  }

  at::Tensor forward(const at::Tensor& x, const nn::AttentionInputs& inputs) override {
    auto [nope, rope, value_width] =
        std::tuple(config_.nope_width, config_.rope_width, config_.value_width);
    at::Tensor query = wq_ ? wq_(x) : wq_b_(q_norm_(wq_a_(x)));
    c10::SymInt batch = query.sym_size(0), length = query.sym_size(1);
    // The heads of this rank: all of them, unless the matrices are sharded.
    c10::SymInt heads = query.sym_size(2) / (nope + rope);
    query = query.view_symint({batch, length, heads, nope + rope});
    std::vector<at::Tensor> query_parts = query.split_with_sizes({nope, rope}, -1);
    query = at::cat({query_parts[0], nn::ApplyRope(query_parts[1], inputs.rotation)}, -1);

    std::vector<at::Tensor> latent = wkv_a_(x).split_with_sizes({config_.kv_lora_rank, rope}, -1);
    // One rotated key serves all heads.
    at::Tensor shared_key = nn::ApplyRope(latent[1].unsqueeze(2), inputs.rotation);
    at::Tensor normed = kv_norm_(latent[0]);
    nn::AttentionInputs attention = inputs;
    if (nn::KeyValueCache* cache = std::exchange(attention.cache, nullptr)) {
      at::Tensor kept =
          cache->Extend(*this, "latent", at::cat({normed.unsqueeze(2), shared_key}, -1));
      if (!cache->first_pass()) return wo_(OverLatents(query, kept, *cache));
    }
    at::Tensor expanded = wkv_b_(normed);
    std::vector<at::Tensor> parts = expanded.view_symint({batch, length, heads, nope + value_width})
                                        .split_with_sizes({nope, value_width}, -1);
    at::Tensor key =
        at::cat({parts[0], shared_key.expand_symint({batch, length, heads, rope})}, -1);
    at::Tensor attended = inner_(query, key, parts[1], attention);
    return wo_(attended.reshape_symint({batch, length, heads * value_width}));
  }

  bool UsesCache() const override { return true; }

  int64_t PairWidth() const override {
    return config_.heads * (config_.query_width() + config_.value_width);
  }

 private:
  // What is kept of a token is its latent and the rotated key, which are far narrower than the keys and
  // values of all heads. Later passes do not expand them: a query is multiplied by the matrix that makes
  // keys of latents and so compared with the latents themselves, and the matrix that makes values is
  // applied to what was mixed. To attention this is one key head that serves all queries.
  at::Tensor OverLatents(const at::Tensor& query, const at::Tensor& kept,
                         const nn::KeyValueCache& cache) {
    auto [nope, rope, value_width, rank] = std::tuple(config_.nope_width, config_.rope_width,
                                                      config_.value_width, config_.kv_lora_rank);
    at::Tensor weight = wkv_b_->weight().view({config_.heads, nope + value_width, rank});
    std::vector<at::Tensor> parts = query.split_with_sizes({nope, rope}, -1);
    at::Tensor sought = at::einsum("blhd,hdc->blhc", {parts[0], weight.narrow(1, 0, nope)});
    // Values are the first channels of the keys. The others are mixed along with them and dropped,
    // because most kernels want keys and values of one width.
    at::Tensor mixed =
        inner_->OverSlots(at::cat({sought, parts[1]}, -1), kept, kept, cache).narrow(3, 0, rank);
    return at::einsum("blhc,hdc->blhd", {mixed, weight.narrow(1, nope, value_width)}).flatten(2);
  }

  LatentConfig config_;
  nn::Ref<nn::Linear> wq_, wq_a_, wq_b_, wkv_a_, wkv_b_, wo_;
  nn::Ref<nn::RmsNorm> q_norm_, kv_norm_;
  nn::Ref<nn::DotProductAttention> inner_;
};

struct DeepSeekV3Config {
  DecoderConfig decoder;
  LatentConfig attention;
  int64_t ffn_width = 1024;  // of the dense layers
  int64_t dense_layers = 1;
  nn::MoeConfig moe;
  int64_t shared_experts = 2;
  double load_balance = 1e-3;      // unless the job says otherwise
  bool halves = false;             // the checkpoint pairs rotary channels in halves
  nlohmann::json rope_parameters;  // as read from a checkpoint
};

class DeepSeekV3 : public Decoder {
 public:
  DeepSeekV3(const DeepSeekV3Config& config, const ModelOptions& options)
      : Decoder(config.decoder, options, Init::Normal(1.0), HeadInit(config.decoder.width),
                [&](int64_t layer) { return Block(config, options, layer); }),
        config_(config) {}

  nlohmann::json HfConfigJson() const override {
    nlohmann::json json = HfCommon("deepseek_v3", "DeepseekV3ForCausalLM");
    const LatentConfig& attention = config_.attention;
    const nn::MoeConfig& moe = config_.moe;
    if (!config_.rope_parameters.is_null()) {
      json["rope_parameters"] = json["rope_scaling"] = config_.rope_parameters;
    }
    json["num_attention_heads"] = json["num_key_value_heads"] = attention.heads;
    if (attention.q_lora_rank > 0) {
      json["q_lora_rank"] = attention.q_lora_rank;
    } else {
      json["q_lora_rank"] = nullptr;
    }
    json["kv_lora_rank"] = attention.kv_lora_rank;
    json["qk_nope_head_dim"] = attention.nope_width;
    json["qk_rope_head_dim"] = json["head_dim"] = attention.rope_width;
    json["qk_head_dim"] = attention.query_width();
    json["v_head_dim"] = attention.value_width;
    json["rope_interleave"] = !config_.halves;
    json["intermediate_size"] = config_.ffn_width;
    json["first_k_dense_replace"] = config_.dense_layers;
    json["n_routed_experts"] = moe.experts;
    json["n_shared_experts"] = config_.shared_experts;
    json["num_experts_per_tok"] = moe.top_k;
    json["moe_intermediate_size"] = moe.hidden;
    json["n_group"] = moe.groups;
    json["topk_group"] = moe.kept_groups;
    json["norm_topk_prob"] = moe.normalize;
    json["routed_scaling_factor"] = moe.scale;
    json["scoring_func"] = moe.score == nn::MoeConfig::Score::kSigmoid ? "sigmoid" : "softmax";
    return json;
  }

 private:
  static std::shared_ptr<TransformerBlock> Block(const DeepSeekV3Config& config,
                                                 const ModelOptions& options, int64_t layer) {
    Init in = Init::TruncatedNormal(0.02), out = DepthScaledInit(layer);
    int64_t width = config.decoder.width;
    std::shared_ptr<nn::FeedForward> feed_forward;
    if (layer < config.dense_layers) {
      feed_forward = std::make_shared<nn::SwiGlu>(width, config.ffn_width, in, out);
    } else {
      feed_forward =
          std::make_shared<nn::Moe>(config.moe, nn::MoeInits{.router = out, .in = in, .out = out});
    }
    return std::make_shared<TransformerBlock>(
        std::make_shared<LatentAttention>(config.attention, options.attention, in, out),
        std::move(feed_forward), width, config.decoder.norm_epsilon);
  }

  // Latents are made from each rank's own stretch of the sequence and gathered afterwards: they are
  // narrower than the input.
  void AddTensorSplits(std::vector<TensorSplit>& splits) const override {
    using Weight = TensorSplit::Weight;
    using Sequence = TensorSplit::Sequence;
    int64_t heads = config_.attention.heads;
    const char* query = config_.attention.q_lora_rank == 0 ? "wq" : "wq_b";
    splits.push_back({.module = std::string("layers.*.attention.") + query,
                      .weight = Weight::kRows,
                      .units = heads,
                      .unit = "heads",
                      .input = Sequence::kGathered});
    splits.push_back({.module = "layers.*.attention.wkv_a", .output = Sequence::kGathered});
    splits.push_back({"layers.*.attention.wkv_b", Weight::kRows, heads, "heads"});
    splits.push_back({.module = "layers.*.attention.wo",
                      .weight = Weight::kColumns,
                      .units = heads,
                      .unit = "heads",
                      .output = Sequence::kReduceScattered});
  }
  int64_t FeedForwardWidth() const override {
    return config_.dense_layers > 0 ? config_.ffn_width : 0;
  }

  // Where the rows of the checkpoint are among ours when it pairs rotary channels in halves: in each
  // of `heads` heads, `plain` rows as they are, then the rotary ones.
  std::vector<int64_t> RotaryRows(int64_t heads, int64_t plain) const {
    if (!config_.halves) return {};
    int64_t rope = config_.attention.rope_width, head = plain + rope;
    std::vector<int64_t> rows(static_cast<size_t>(heads * head));
    std::iota(rows.begin(), rows.end(), 0);
    for (int64_t h = 0; h < heads; ++h) {
      int64_t first = h * head + plain;
      for (int64_t i = 0; i < rope; ++i) {
        int64_t pair = i % (rope / 2), part = i / (rope / 2);
        rows[static_cast<size_t>(first + i)] = first + 2 * pair + part;
      }
    }
    return rows;
  }

  void AddHfLayer(int64_t layer, const std::string& ours, const std::string& theirs,
                  std::vector<HfTensor>& tensors) const override {
    AddHfAttention(ours + "attention.", theirs + "self_attn.", tensors);
    if (layer < config_.dense_layers) {
      AddHfSwiGlu(ours + "feed_forward.", theirs + "mlp.", config_.decoder.width, config_.ffn_width,
                  tensors);
      return;
    }
    const nn::MoeConfig& moe = config_.moe;
    std::string mine = ours + "moe.", yours = theirs + "mlp.";
    tensors.push_back(
        {yours + "gate.weight", {moe.experts, moe.width}, mine + "router.gate.weight"});
    if (moe.bias) {
      tensors.push_back(
          {yours + "gate.e_score_correction_bias", {moe.experts}, mine + "expert_bias"});
    }
    AddHfExperts(mine + "experts.", yours + "experts.", moe, tensors);
    if (moe.shared_hidden > 0) {
      AddHfSwiGlu(mine + "shared_experts.", yours + "shared_experts.", moe.width, moe.shared_hidden,
                  tensors);
    }
  }

  void AddHfAttention(const std::string& ours, const std::string& theirs,
                      std::vector<HfTensor>& tensors) const {
    const LatentConfig& a = config_.attention;
    auto add = [&](const char* yours, const char* mine, std::vector<int64_t> sizes,
                   std::vector<int64_t> rows = {}) {
      tensors.push_back({theirs + yours, std::move(sizes), ours + mine, {}, std::move(rows)});
    };
    int64_t query_rows = a.heads * a.query_width();
    if (a.q_lora_rank == 0) {
      add("q_proj.weight", "wq.weight", {query_rows, a.width}, RotaryRows(a.heads, a.nope_width));
    } else {
      add("q_a_proj.weight", "wq_a.weight", {a.q_lora_rank, a.width});
      add("q_a_layernorm.weight", "q_norm.weight", {a.q_lora_rank});
      add("q_b_proj.weight", "wq_b.weight", {query_rows, a.q_lora_rank},
          RotaryRows(a.heads, a.nope_width));
    }
    add("kv_a_proj_with_mqa.weight", "wkv_a.weight", {a.kv_lora_rank + a.rope_width, a.width},
        RotaryRows(1, a.kv_lora_rank));
    add("kv_a_layernorm.weight", "kv_norm.weight", {a.kv_lora_rank});
    add("kv_b_proj.weight", "wkv_b.weight",
        {a.heads * (a.nope_width + a.value_width), a.kv_lora_rank});
    add("o_proj.weight", "wo.weight", {a.width, a.heads * a.value_width});
  }

  DeepSeekV3Config config_;
};

// Positions stretched forty times beyond 4096, with attention sharpened to match. `m` is published
// as mscale_all_dim.
void SetYarn(DeepSeekV3Config& config, double m) {
  config.decoder.rope = {10000.0, nn::YarnScaling{.factor = 40.0}};
  config.attention.softmax_factor = std::pow(nn::YarnAttentionScale(40.0, m), 2);
  config.rope_parameters = {{"rope_type", "yarn"}, {"rope_theta", 10000.0},
                            {"factor", 40.0},      {"beta_fast", 32.0},
                            {"beta_slow", 1.0},    {"original_max_position_embeddings", 4096},
                            {"mscale", m},         {"mscale_all_dim", m}};
}

DeepSeekV3Config DebugModel() {
  DeepSeekV3Config config;
  config.decoder.rotated_width = config.attention.rope_width;
  config.decoder.max_positions = 163840;
  config.moe = {.width = 256, .experts = 8, .hidden = 256, .top_k = 3};
  SetYarn(config, 0.7);
  return config;
}

DeepSeekV3Config Tiny() {
  DeepSeekV3Config config = DebugModel();
  config.decoder.vocab = 256;
  config.decoder.width = config.attention.width = config.moe.width = 32;
  config.decoder.layers = 2;
  config.decoder.rotated_width = 8;
  config.attention = {.width = 32,
                      .heads = 4,
                      .q_lora_rank = 16,
                      .kv_lora_rank = 16,
                      .nope_width = 16,
                      .rope_width = 8,
                      .value_width = 12,
                      .softmax_factor = config.attention.softmax_factor};
  config.ffn_width = 96;
  config.moe = {.width = 32,
                .experts = 8,
                .hidden = 24,
                .top_k = 2,
                .score = nn::MoeConfig::Score::kSigmoid,
                .normalize = true,
                .scale = 2.5,
                .groups = 2,
                .kept_groups = 1};
  config.shared_experts = 1;
  return config;
}

DeepSeekV3Config Sixteen() {
  DeepSeekV3Config config = DebugModel();
  config.decoder.vocab = 102400;
  config.decoder.width = config.attention.width = config.moe.width = 2048;
  config.decoder.layers = 27;
  config.decoder.norm_epsilon = config.attention.norm_epsilon = 1e-6;
  config.ffn_width = 10944;
  config.moe.experts = 64;
  config.moe.hidden = 1408;
  config.moe.top_k = 6;
  SetYarn(config, 0.707);
  return config;
}

DeepSeekV3Config Full() {
  DeepSeekV3Config config = Sixteen();
  config.decoder.vocab = 129280;
  config.decoder.width = config.attention.width = config.moe.width = 7168;
  config.decoder.layers = 61;
  config.attention.heads = 128;
  config.attention.q_lora_rank = 1536;
  config.ffn_width = 18432;
  config.dense_layers = 3;
  config.moe = {.width = 7168,
                .experts = 256,
                .hidden = 2048,
                .top_k = 8,
                .score = nn::MoeConfig::Score::kSigmoid,
                .normalize = true,
                .scale = 2.5,
                .groups = 8,
                .kept_groups = 4};
  config.shared_experts = 1;
  SetYarn(config, 1.0);
  return config;
}

struct Flavor {
  const char* name;
  DeepSeekV3Config (*config)();
};

constexpr Flavor kFlavors[] = {
    {"tiny", Tiny}, {"debugmodel", DebugModel}, {"16B", Sixteen}, {"671B", Full}};

ModelPtr Build(DeepSeekV3Config config, const ModelOptions& options) {
  ApplyOptions(options, config.decoder);
  config.moe.shared_hidden = config.shared_experts * config.moe.hidden;
  config.moe.force_balance = options.force_balance;
  config.moe.load_balance = LoadBalance(options, config.load_balance);
  config.moe.bias = true;
  return std::make_shared<DeepSeekV3>(config, options);
}

void ReadMoe(const HfConfig& hf, nn::MoeConfig& moe) {
  moe.experts = hf.Int("n_routed_experts");
  moe.hidden = hf.Int("moe_intermediate_size");
  moe.top_k = hf.Int("num_experts_per_tok");
  moe.normalize = hf.Bool("norm_topk_prob", true);
  moe.scale = hf.Number("routed_scaling_factor", 1.0);
  moe.groups = std::max<int64_t>(hf.Int("n_group", 1), 1);
  moe.kept_groups = std::max<int64_t>(hf.Int("topk_group", 1), 1);
  if (moe.experts % moe.groups != 0) hf.Reject("n_group", "must divide n_routed_experts");
  if (moe.kept_groups > moe.groups) hf.Reject("topk_group", "is larger than n_group");
  if (moe.top_k > moe.experts / moe.groups * moe.kept_groups) {
    hf.Reject("num_experts_per_tok", "is larger than the experts of the groups that are kept");
  }
  std::string score = hf.Find("scoring_func") == nullptr ? "sigmoid" : hf.String("scoring_func");
  if (score != "sigmoid" && score != "softmax") {
    hf.Reject("scoring_func", "is '" + score + "', but gt knows sigmoid and softmax");
  }
  moe.score = score == "sigmoid" ? nn::MoeConfig::Score::kSigmoid : nn::MoeConfig::Score::kSoftmax;
}

ModelPtr FromHf(const HfConfig& hf, const ModelOptions& options) {
  hf.RequireFalse("attention_bias");
  hf.RequireSilu();
  DeepSeekV3Config config;
  LatentConfig& attention = config.attention;
  attention.width = config.moe.width = hf.Int("hidden_size");
  attention.heads = hf.Int("num_attention_heads");
  attention.q_lora_rank = hf.Int("q_lora_rank", 0);
  attention.kv_lora_rank = hf.Int("kv_lora_rank");
  attention.nope_width = hf.Int("qk_nope_head_dim");
  attention.rope_width = hf.Int("qk_rope_head_dim");
  attention.value_width = hf.Int("v_head_dim");
  if (attention.rope_width % 2 != 0) hf.Reject("qk_rope_head_dim", "must be even");
  attention.norm_epsilon = 1e-6;  // of the latents, whatever rms_norm_eps is
  config.decoder = DecoderFromHf(hf, attention.rope_width);
  hf.Rope(&config.rope_parameters);
  if (const auto* yarn = std::get_if<nn::YarnScaling>(&config.decoder.rope.scaling)) {
    double all = HfConfig(config.rope_parameters, hf.path()).Number("mscale_all_dim", 0.0);
    if (all != 0) attention.softmax_factor = std::pow(nn::YarnAttentionScale(yarn->factor, all), 2);
  }
  config.halves = !hf.Bool("rope_interleave", true);
  config.ffn_width = hf.Int("intermediate_size");
  config.dense_layers = hf.Int("first_k_dense_replace", 0);
  config.shared_experts = hf.Int("n_shared_experts", 0);
  config.load_balance = 0.0;  // a published bias stays unless the job asks for more
  ReadMoe(hf, config.moe);
  return Build(config, options);
}

const ModelRegistration kRegistration({
    .name = "deepseek_v3",
    .source = "DeepSeek-V3 of DeepSeek, mixture of experts with latent attention",
    .flavors = FlavorNames(kFlavors),
    .build =
        [](const std::string& name, const ModelOptions& options) {
          return Build(FindFlavor(kFlavors, name).config(), options);
        },
    .hf_types = {"deepseek_v3"},
    .build_from_hf = FromHf,
});

}  // namespace
}  // namespace gt::deepseek_v3
