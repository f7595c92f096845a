// A model family that was added by following docs/adding_a_model.md, which walks through this file.
// Nearly everything about it differs from the families that ship with gt: learned absolute positions
// instead of rotary ones, norms before and after each part, a feed-forward part without gates, a tied
// head, attention over a sliding window with scores that fall with the distance, and checkpoints that
// store matrices transposed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "gt/base/error.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/job/config.h"
#include "gt/models/decoder.h"
#include "gt/models/hf_checkpoint.h"
#include "gt/nn/blocks.h"
#include "gt/nn/flex_attention.h"
#include "gt/storage/safetensors.h"
#include "gt/testing/temp_folder.h"
#include "gt/torch_bridge/one_thread_test_util.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/eager_step.h"
#include "gt/train/step/optimizer.h"
#include "gt/train/step/step.h"
#include "gt/train/step/step_test_util.h"

namespace gt::added_model_test {
namespace {

using nn::Init;
using testing::ExpectError;
using testing::TempFolder;

struct AlibiConfig {
  int64_t vocab = 256;
  int64_t width = 32;
  int64_t layers = 2;
  int64_t heads = 4;
  int64_t ffn_width = 128;
  int64_t window = 6;  // a token sees itself and so many minus one before it
  int64_t max_positions = 64;
  double norm_epsilon = 1e-6;

  int64_t head_width() const { return width / heads; }
};

// Captures the slope of each head, and the positions when documents are kept apart.
nn::FlexFunctions WindowFunctions(int64_t window, bool within_documents) {
  nn::FlexFunctions functions;
  functions.score = [](const nn::ScorePoint& point) {
    at::Tensor slope = point.Lookup(0, {point.head});
    return point.score - slope * (point.query - point.key);
  };
  functions.mask = [=](const nn::PairPoint& point) {
    at::Tensor distance = point.query - point.key;
    at::Tensor near = at::logical_and(at::ge(distance, 0), at::lt(distance, window));
    if (!within_documents) return near;
    // A token's position is the number of tokens of its document that stand before it.
    at::Tensor position = point.Lookup(1, {point.batch, point.query});
    return at::logical_and(near, at::le(distance, position));
  };
  functions.captures = {{at::kFloat, 1}};
  if (within_documents) functions.captures.push_back({at::kInt, 2});
  return functions;
}

at::Tensor Slopes(int64_t heads) {
  return at::exp2(at::arange(1, heads + 1, at::kFloat) * (-8.0 / static_cast<double>(heads)));
}

class WindowAttention : public nn::Module {
 public:
  WindowAttention(const AlibiConfig& config, bool within_documents, Init in, Init out)
      : config_(config),
        within_documents_(within_documents),
        attend_(WindowFunctions(config.window, within_documents)) {
    set_role(ModuleRole::kAttention);
    wqkv_ = AddChild<nn::Linear>("wqkv", config.width, 3 * config.width, in);
    wo_ = AddChild<nn::Linear>("wo", config.width, config.width, out);
    AddBuffer("slopes", slopes_, Slopes(config.heads), nn::BufferKind::kTable);
  }

  // positions: [batch, length], int32
  at::Tensor forward(const at::Tensor& x, const at::Tensor& positions) {
    c10::SymInt batch = x.sym_size(0), length = x.sym_size(1);
    int64_t heads = config_.heads, width = config_.head_width();
    std::vector<at::Tensor> parts = wqkv_(x)
                                        .view_symint({batch, length, heads, 3 * width})
                                        .split_with_sizes({width, width, width}, -1);
    std::vector<at::Tensor> captures = {slopes_};
    if (within_documents_) captures.push_back(positions);
    double scale = 1.0 / std::sqrt(static_cast<double>(width));
    at::Tensor attended = attend_(parts[0].transpose(1, 2), parts[1].transpose(1, 2),
                                  parts[2].transpose(1, 2), scale, captures);
    return wo_(attended.transpose(1, 2).reshape_symint({batch, length, heads * width}));
  }

 private:
  AlibiConfig config_;
  bool within_documents_;
  nn::FlexAttention attend_;
  nn::Ref<nn::Linear> wqkv_, wo_;
  at::Tensor slopes_;
};

// w2(gelu(w1 x))
class GeluMlp : public nn::FeedForward {
 public:
  GeluMlp(int64_t width, int64_t hidden, Init in, Init out)
      : w1_(AddChild<nn::Linear>("w1", width, hidden, in)),
        w2_(AddChild<nn::Linear>("w2", hidden, width, out)) {
    set_role(ModuleRole::kFeedForward);
  }
  at::Tensor forward(const at::Tensor& x) override { return w2_(at::gelu(w1_(x))); }

 private:
  nn::Ref<nn::Linear> w1_, w2_;
};

class SandwichBlock : public nn::Module {
 public:
  SandwichBlock(const AlibiConfig& config, bool within_documents, int64_t layer) {
    set_role(ModuleRole::kBlock);
    Init in = Init::TruncatedNormal(0.02), out = DepthScaledInit(layer);
    auto norm = [&](const char* name) {
      return AddChild<nn::RmsNorm>(name, config.width, config.norm_epsilon);
    };
    before_attention_ = norm("before_attention");
    attention_ = AddChild<WindowAttention>("attention", config, within_documents, in, out);
    after_attention_ = norm("after_attention");
    before_mlp_ = norm("before_mlp");
    mlp_ = AddChild<GeluMlp>("mlp", config.width, config.ffn_width, in, out);
    after_mlp_ = norm("after_mlp");
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& positions) {
    at::Tensor h = x + after_attention_(attention_(before_attention_(x), positions));
    return h + after_mlp_(mlp_(before_mlp_(h)));
  }

 private:
  nn::Ref<nn::RmsNorm> before_attention_, after_attention_, before_mlp_, after_mlp_;
  nn::Ref<WindowAttention> attention_;
  nn::Ref<GeluMlp> mlp_;
};

class AlibiModel : public LanguageModel {
 public:
  AlibiModel(const AlibiConfig& config, const ModelOptions& options) : config_(config) {
    if (options.max_length > config.max_positions) {
      Fail(ErrorCode::kSequenceTooLong,
           "sequences of {} tokens were asked for, but the model was made for at most {}; lower "
           "--training.seq_len",
           options.max_length, config.max_positions);
    }
    bool within_documents = options.attention.mask == AttentionMask::kBlockCausal;
    Init init = Init::Normal(0.02);
    tok_embeddings_ = AddChild<nn::Embedding>("tok_embeddings", config.vocab, config.width, init);
    pos_embeddings_ =
        AddChild<nn::Embedding>("pos_embeddings", config.max_positions, config.width, init);
    auto layers = register_module("layers", std::make_shared<nn::Module>());
    for (int64_t i = 0; i < config.layers; ++i) {
      auto block = std::make_shared<SandwichBlock>(config, within_documents, i);
      layers_.emplace_back(layers->register_module(std::to_string(i), std::move(block)));
    }
    norm_ = AddChild<nn::RmsNorm>("norm", config.width, config.norm_epsilon);
    nn::NameModules(*this);
  }

  at::Tensor Hidden(const ModelInputs& inputs) override {
    at::Tensor positions = inputs.positions.to(at::kInt);
    at::Tensor h = tok_embeddings_(inputs.tokens) + pos_embeddings_(inputs.positions);
    for (const auto& layer : layers_) h = layer(h, positions);
    return norm_(h);
  }

  at::Tensor HeadWeight() const override { return tok_embeddings_->weight(); }
  int64_t vocab_size() const override { return config_.vocab; }

  // The embedding is also the head, which multiplies; positions are only looked up.
  int64_t ActiveParameters() const override {
    return nn::ParameterCount(*this) - nn::ParameterCount(*pos_embeddings_);
  }

  int64_t FlopsPerToken(int64_t length) const override {
    // Each pair that the window allows costs two products as wide as the model: 4 operations per
    // channel forward and twice that backward.
    int64_t window = std::min(config_.window, length);
    int64_t pairs = window * (window + 1) / 2 + (length - window) * window;
    return 6 * ActiveParameters() + 12 * config_.layers * config_.width * pairs / length;
  }

  std::vector<HfTensor> HfTensors() const override {
    int64_t width = config_.width;
    std::vector<HfTensor> tensors = {
        {"transformer.wte.weight", {config_.vocab, width}, "tok_embeddings.weight"},
        {"transformer.wpe.weight", {config_.max_positions, width}, "pos_embeddings.weight"},
        {"transformer.ln_f.weight", {width}, "norm.weight"}};
    for (int64_t i = 0; i < config_.layers; ++i) AddHfLayer(i, tensors);
    return tensors;
  }

  nlohmann::json HfConfigJson() const override {
    return {{"architectures", {"AlibiForCausalLM"}},
            {"model_type", "alibi_window"},
            {"vocab_size", config_.vocab},
            {"hidden_size", config_.width},
            {"num_hidden_layers", config_.layers},
            {"num_attention_heads", config_.heads},
            {"intermediate_size", config_.ffn_width},
            {"attention_window", config_.window},
            {"max_position_embeddings", config_.max_positions},
            {"rms_norm_eps", config_.norm_epsilon},
            {"hidden_act", "gelu"},
            {"tie_word_embeddings", true}};
  }

 private:
  // Checkpoints of this family keep matrices as [in, out], and queries, keys and values of all heads
  // one after another; ours are head by head.
  void AddHfLayer(int64_t layer, std::vector<HfTensor>& tensors) const {
    int64_t width = config_.width, ffn = config_.ffn_width;
    int64_t heads = config_.heads, head_width = config_.head_width();
    std::string ours = "layers." + std::to_string(layer) + ".";
    std::string theirs = "transformer.h." + std::to_string(layer) + ".";
    for (auto [their_norm, our_norm] : {std::pair{"ln_1", "before_attention"},
                                        {"ln_1_post", "after_attention"},
                                        {"ln_2", "before_mlp"},
                                        {"ln_2_post", "after_mlp"}}) {
      tensors.push_back(
          {theirs + their_norm + ".weight", {width}, ours + our_norm + std::string(".weight")});
    }
    auto transposed = [](const at::Tensor& weight) { return weight.t(); };
    auto by_kind = [=](const at::Tensor& wqkv) {
      return wqkv.view({heads, 3, head_width, width}).permute({3, 1, 0, 2});
    };
    tensors.push_back({theirs + "attn.c_attn.weight",
                       {width, 3 * width},
                       ours + "attention.wqkv.weight",
                       by_kind});
    tensors.push_back(
        {theirs + "attn.c_proj.weight", {width, width}, ours + "attention.wo.weight", transposed});
    tensors.push_back(
        {theirs + "mlp.c_fc.weight", {width, ffn}, ours + "mlp.w1.weight", transposed});
    tensors.push_back(
        {theirs + "mlp.c_proj.weight", {ffn, width}, ours + "mlp.w2.weight", transposed});
  }

  AlibiConfig config_;
  nn::Ref<nn::Embedding> tok_embeddings_, pos_embeddings_;
  std::vector<nn::Ref<SandwichBlock>> layers_;
  nn::Ref<nn::RmsNorm> norm_;
};

struct Flavor {
  const char* name;
  AlibiConfig config;
};

constexpr Flavor kFlavors[] = {
    {"tiny", {}},
    {"small",
     {.vocab = 50304,
      .width = 768,
      .layers = 12,
      .heads = 12,
      .ffn_width = 3072,
      .window = 256,
      .max_positions = 2048}},
};

ModelPtr Build(AlibiConfig config, const ModelOptions& options) {
  if (options.layers > 0) config.layers = options.layers;
  if (options.vocab > 0) config.vocab = options.vocab;
  return std::make_shared<AlibiModel>(config, options);
}

ModelPtr FromHf(const HfConfig& hf, const ModelOptions& options) {
  if (hf.String("hidden_act") != "gelu") hf.Reject("hidden_act", "must be gelu");
  AlibiConfig config;
  config.vocab = hf.Int("vocab_size");
  config.width = hf.Int("hidden_size");
  config.layers = hf.Int("num_hidden_layers");
  config.heads = hf.Int("num_attention_heads");
  config.ffn_width = hf.Int("intermediate_size");
  config.window = hf.Int("attention_window");
  config.max_positions = hf.Int("max_position_embeddings");
  config.norm_epsilon = hf.Number("rms_norm_eps", 1e-6);
  if (config.width % config.heads != 0) {
    hf.Reject("num_attention_heads", "must divide hidden_size");
  }
  return Build(config, options);
}

const ModelRegistration kRegistration({
    .name = "alibi_window",
    .source = "a decoder whose attention reaches back a fixed number of tokens",
    .flavors = FlavorNames(kFlavors),
    .build =
        [](const std::string& name, const ModelOptions& options) {
          return Build(FindFlavor(kFlavors, name).config, options);
        },
    .hf_types = {"alibi_window"},
    .build_from_hf = FromHf,
});

// From here on the tests that docs/adding_a_model.md asks for.

class AddedModel : public ::testing::Test {
  testing::OneThread one_thread_;
};

constexpr int64_t kLength = 24;

Config TinyConfig(AttentionMask mask = AttentionMask::kCausal) {
  Config config;
  config.model.name = "alibi_window";
  config.model.flavor = "tiny";
  config.model.attn_mask_type = mask;
  config.training.local_batch_size = 4;
  config.training.seq_len = kLength;
  return config;
}

ModelPtr TinyModel(const Config& config, bool bf16_compute = false) {
  ModelOptions options;
  options.max_length = config.training.seq_len;
  options.attention.mask = config.model.attn_mask_type;
  ModelPtr model = BuildModel(config.model.name, config.model.flavor, options);
  nn::Materialize(*model, at::kCPU, config.training.seed);
  if (bf16_compute) CastParametersForCompute(*model, at::kBFloat16);
  return model;
}

// Rows of two documents each.
Batch RandomBatch(int64_t rows, int64_t seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  Batch batch;
  batch.tokens = at::randint(256, {rows, kLength}, at::kLong);
  batch.labels = at::randint(256, {rows, kLength}, at::kLong);
  batch.positions = at::arange(kLength).remainder(kLength - 9).expand({rows, kLength}).contiguous();
  batch.valid_tokens = rows * kLength;
  return batch;
}

TEST_F(AddedModel, HasTheParametersOfItsParts) {
  AlibiConfig config;
  int64_t layer = 4 * 32 * 32 + 2 * 32 * 128 + 4 * 32;
  EXPECT_EQ(nn::ParameterCount(*BuildModel("alibi_window", "tiny", {.max_length = 16})),
            (config.vocab + config.max_positions) * 32 + 2 * layer + 32);
  ModelOptions options{.max_length = 16, .layers = 1, .vocab = 100};
  EXPECT_EQ(nn::ParameterCount(*BuildModel("alibi_window", "tiny", options)),
            (100 + config.max_positions) * 32 + layer + 32);
}

TEST_F(AddedModel, FlopsCountWhatTheWindowAllows) {
  ModelPtr model = BuildModel("alibi_window", "tiny", {.max_length = 16});
  int64_t weights = 6 * model->ActiveParameters();
  // Four tokens make ten pairs; ten tokens make 21 among the first six and 6 for each of the rest.
  EXPECT_EQ(model->FlopsPerToken(4), weights + 12 * 2 * 32 * 10 / 4);
  EXPECT_EQ(model->FlopsPerToken(10), weights + 12 * 2 * 32 * (21 + 24) / 10);
}

TEST_F(AddedModel, CapturedEqualsEagerOverManySteps) {
  for (AttentionMask mask : {AttentionMask::kCausal, AttentionMask::kBlockCausal}) {
    for (bool bf16 : {false, true}) {
      SCOPED_TRACE(std::string(EnumName(mask)) + (bf16 ? " bf16" : " fp32"));
      Config config = TinyConfig(mask);
      ModelPtr eager_model = TinyModel(config, bf16), captured_model = TinyModel(config, bf16);
      auto eager = MakeEagerStep(*eager_model, LossConfigOf(config, *eager_model));
      auto captured = MakeCapturedStep(
          *captured_model,
          Compile({.model = *captured_model, .config = config, .device = at::kCPU}));
      AdamW eager_optimizer(NamedParameters(*eager_model), config.optimizer);
      AdamW captured_optimizer(NamedParameters(*captured_model), config.optimizer);
      for (int64_t step = 0; step < 6; ++step) {
        Batch batch = RandomBatch(4, step);
        StepResult expected = eager->Run(batch, batch.valid_tokens),
                   actual = captured->Run(batch, batch.valid_tokens);
        ExpectSameBits(expected, actual, *eager_model);
        eager_optimizer.Step(OwnGradients(eager_model->parameters(), expected.gradients), 1e-2);
        captured_optimizer.Step(OwnGradients(captured_model->parameters(), actual.gradients), 1e-2);
      }
    }
  }
}

TEST_F(AddedModel, LearnsABatchByHeart) {
  Config config = TinyConfig();
  ModelPtr model = TinyModel(config);
  auto step =
      MakeCapturedStep(*model, Compile({.model = *model, .config = config, .device = at::kCPU}));
  AdamW optimizer(NamedParameters(*model), config.optimizer);
  Batch batch = RandomBatch(4, 0);
  double first = 0, last = 0;
  for (int64_t i = 0; i < 40; ++i) {
    StepResult result = step->Run(batch, batch.valid_tokens);
    last = result.loss.item<double>();
    if (i == 0) first = last;
    optimizer.Step(OwnGradients(model->parameters(), result.gradients), 1e-2);
  }
  EXPECT_NEAR(first, std::log(256.0), 0.3);
  EXPECT_LT(last, first / 2);
}

TEST_F(AddedModel, OneCaptureServesOtherBatchSizes) {
  for (ExecutorKind executor : {ExecutorKind::kFast, ExecutorKind::kReference}) {
    Config config = TinyConfig(AttentionMask::kBlockCausal);
    ModelPtr model = TinyModel(config);
    auto eager = MakeEagerStep(*model, LossConfigOf(config, *model));
    auto captured = MakeCapturedStep(
        *model,
        Compile({.model = *model, .config = config, .device = at::kCPU, .symbolic_batch = true}),
        {.executor = executor});
    for (int64_t rows : {2, 5, 4, 3}) {
      Batch batch = RandomBatch(rows, rows);
      ExpectSameBits(eager->Run(batch, batch.valid_tokens),
                     captured->Run(batch, batch.valid_tokens), *model);
    }
  }
}

TEST_F(AddedModel, EveryNodeNamesItsModule) {
  Config config = TinyConfig();
  ModelPtr model = BuildModel("alibi_window", "tiny", {.max_length = kLength});
  CompiledStep captured =
      Compile({.model = *model, .config = config, .device = at::kCPU, .symbolic_batch = true});
  std::set<std::string> modules = {"", "loss"}, attending;
  for (const auto& item : model->named_modules("", false)) modules.insert(item.key());
  for (const Node* node : captured.graph->nodes()) {
    std::string module = node->meta().module.str();
    EXPECT_TRUE(modules.contains(module)) << module;
    if (node->op().name.str() == "gt::flex_attention") attending.insert(module);
  }
  EXPECT_EQ(attending, (std::set<std::string>{"layers.0.attention", "layers.1.attention"}));
}

// Two layers reach twice as far as the window does.
TEST_F(AddedModel, TokensSeeTheirWindowAlone) {
  ModelPtr model = TinyModel(TinyConfig());
  at::NoGradGuard no_gradients;
  Batch batch = RandomBatch(1, 5);
  at::Tensor before = model->Hidden({batch.tokens, batch.positions});
  constexpr int64_t kChanged = 4, kReach = 2 * (6 - 1);
  at::Tensor tokens = batch.tokens.clone();
  tokens[0][kChanged] = (tokens[0][kChanged] + 1).remainder(256);
  at::Tensor after = model->Hidden({tokens, batch.positions});
  for (int64_t i = 0; i < kLength; ++i) {
    bool reached = i >= kChanged && i <= kChanged + kReach;
    EXPECT_EQ(before[0][i].equal(after[0][i]), !reached) << "token " << i;
  }
}

TEST_F(AddedModel, DocumentsAreKeptApartWhereAskedTo) {
  constexpr int64_t kSecond = kLength - 9;  // where the second document begins
  for (AttentionMask mask : {AttentionMask::kCausal, AttentionMask::kBlockCausal}) {
    ModelPtr model = TinyModel(TinyConfig(mask));
    at::NoGradGuard no_gradients;
    Batch batch = RandomBatch(1, 5);
    at::Tensor before = model->Hidden({batch.tokens, batch.positions});
    at::Tensor tokens = batch.tokens.clone();
    tokens[0][kSecond - 1] = (tokens[0][kSecond - 1] + 1).remainder(256);
    at::Tensor after = model->Hidden({tokens, batch.positions});
    bool same = before.narrow(1, kSecond, 9).equal(after.narrow(1, kSecond, 9));
    EXPECT_EQ(same, mask == AttentionMask::kBlockCausal);
  }
}

at::Tensor Stored(const SafetensorsFolder& folder, const std::string& name) {
  const TensorEntry* entry = folder.Find(name);
  if (entry == nullptr) return {};
  at::Tensor tensor = at::empty(entry->sizes, at::kFloat);
  std::memcpy(tensor.mutable_data_ptr(), entry->bytes.data(), entry->bytes.size());
  return tensor;
}

TEST_F(AddedModel, GoesToHuggingFaceAndBack) {
  ModelPtr model = TinyModel(TinyConfig());
  TempFolder folder, again;
  SaveHfFolder(*model, folder.path().string(), at::kFloat);
  ModelPtr loaded = BuildModelFromHf(folder.path().string(), {.max_length = kLength});
  nn::Allocate(*loaded, at::kCPU);
  LoadHfWeights(*loaded, folder.path().string());
  auto expected = nn::NamedState(*model), actual = nn::NamedState(*loaded);
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].name, actual[i].name);
    EXPECT_TRUE(SameBits(expected[i].tensor, actual[i].tensor)) << expected[i].name;
  }
  SaveHfFolder(*loaded, again.path().string(), at::kFloat);
  for (const char* name : {"config.json", "model.safetensors"}) {
    EXPECT_EQ(testing::ReadText(folder / name), testing::ReadText(again / name)) << name;
  }
}

// A round trip would also succeed with rows in an order that nobody else expects.
TEST_F(AddedModel, WritesTheOrderThatItsCheckpointsHave) {
  ModelPtr model = TinyModel(TinyConfig());
  TempFolder folder;
  SaveHfFolder(*model, folder.path().string(), at::kFloat);
  SafetensorsFolder written(folder.path());
  auto parameters = model->named_parameters();
  at::Tensor fused = Stored(written, "transformer.h.1.attn.c_attn.weight");
  at::Tensor ours = parameters["layers.1.attention.wqkv.weight"];
  constexpr int64_t kHeadWidth = 8;
  for (int64_t kind = 0; kind < 3; ++kind) {
    for (int64_t head = 0; head < 4; ++head) {
      at::Tensor theirs = fused.narrow(1, kind * 32 + head * kHeadWidth, kHeadWidth);
      at::Tensor rows = ours.narrow(0, (head * 3 + kind) * kHeadWidth, kHeadWidth);
      EXPECT_TRUE(theirs.t().equal(rows)) << "kind " << kind << ", head " << head;
    }
  }
  at::Tensor up = Stored(written, "transformer.h.0.mlp.c_fc.weight");
  EXPECT_TRUE(up.t().equal(parameters["layers.0.mlp.w1.weight"]));
}

TEST_F(AddedModel, RefusesWhatItCannotCompute) {
  TempFolder folder;
  std::string path = folder.path().string();
  nlohmann::json good = BuildModel("alibi_window", "tiny", {.max_length = 16})->HfConfigJson();
  auto build = [&] { BuildModelFromHf(path, {.max_length = 16}); };
  for (auto [key, value] : {std::pair<const char*, nlohmann::json>{"hidden_act", "silu"},
                            {"num_attention_heads", 5},
                            {"attention_window", nullptr}}) {
    nlohmann::json bad = good;
    bad[key] = value;
    testing::WriteText(folder / "config.json", bad.dump());
    ExpectError(ErrorCode::kBadHfConfig, {"config.json", key}, build);
  }
  ExpectError(ErrorCode::kSequenceTooLong, {"65", "64"},
              [] { BuildModel("alibi_window", "tiny", {.max_length = 65}); });
}

}  // namespace
}  // namespace gt::added_model_test
