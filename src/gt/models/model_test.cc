#include "gt/models/model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "gt/base/error.h"
#include "gt/base/workers.h"
#include "gt/job/config.h"
#include "gt/models/hf_checkpoint.h"
#include "gt/models/hf_mapping.h"
#include "gt/nn/moe.h"
#include "gt/sim/routing_loads.h"
#include "gt/storage/checksum.h"
#include "gt/storage/safetensors.h"
#include "gt/testing/temp_folder.h"
#include "gt/torch_bridge/convert.h"
#include "gt/torch_bridge/device.h"
#include "gt/torch_bridge/tensor_fill.h"

namespace gt::model_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ExpectError;
using testing::TempFolder;
using testing::WriteText;

const fs::path kFixtures = fs::path(GT_SOURCE_DIR) / "tests" / "parity";

// So many threads inside an operator, for as long as the object lives.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

// For tests that run many tiny operators: on a busy machine they would mostly wait for threads.
class SmallModelTest : public ::testing::Test {
  Threads one_{1};
};
using HfCheckpoint = SmallModelTest;
using Moe = SmallModelTest;

struct PublishedSize {
  const char* family;
  const char* flavor;
  int64_t parameters;
};

// What the authors of the models publish; for the debug models, what torchtitan's have.
TEST(Models, FlavorsHaveTheirPublishedSizes) {
  constexpr PublishedSize kSizes[] = {
      {"llama3", "debugmodel", 6'163'712},
      {"llama3", "1B", 1'235'814'400},
      {"llama3", "3B", 3'212'749'824},
      {"llama3", "8B", 8'030'261'248},
      {"llama3", "70B", 70'553'706'496},
      {"llama3", "405B", 405'853'388'800},
      {"qwen3", "0.6B", 596'049'920},
      {"qwen3", "1.7B", 1'720'574'976},
      {"qwen3", "4B", 4'022'468'096},
      {"qwen3", "8B", 8'190'735'360},
      {"qwen3", "14B", 14'768'307'200},
      {"qwen3", "32B", 32'762'123'264},
      {"qwen3", "30B-A3B", 30'532'122'624},
      {"qwen3", "235B-A22B", 235'093'634'560},
      {"deepseek_v3", "debugmodel", 33'014'016},
      {"deepseek_v3", "16B", 15'706'484'224},
      {"deepseek_v3", "671B", 671'026'404'352},
  };
  for (const PublishedSize& size : kSizes) {
    ModelPtr model = BuildModel(size.family, size.flavor, {.max_length = 16});
    EXPECT_EQ(nn::ParameterCount(*model), size.parameters) << size.family << " " << size.flavor;
  }
}

// The part of a mixture of experts that works on one token is what the models' names promise.
TEST(Models, ActiveParametersLeaveIdleExpertsOut) {
  auto active = [](const char* family, const char* flavor) {
    return static_cast<double>(BuildModel(family, flavor, {.max_length = 16})->ActiveParameters());
  };
  EXPECT_NEAR(active("qwen3", "30B-A3B"), 3.0e9, 0.1e9);
  EXPECT_NEAR(active("qwen3", "235B-A22B"), 22e9, 0.5e9);
  EXPECT_NEAR(active("deepseek_v3", "671B"), 37e9, 0.6e9);
  // All but the rows of the embedding, which are looked up and multiply nothing.
  EXPECT_EQ(active("llama3", "8B"), 8'030'261'248 - 128'256 * 4096);
}

TEST(Models, BuildingAllocatesNoWeights) {
  auto model = BuildModel("llama3", "405B", {.max_length = 16});
  for (const at::Tensor& parameter : model->parameters()) EXPECT_TRUE(parameter.is_meta());
}

TEST(Models, WeightsDependOnSeedAndNameAlone) {
  auto a = BuildModel("llama3", "tiny", {.max_length = 16}),
       b = BuildModel("llama3", "tiny", {.max_length = 32});
  nn::Materialize(*a, at::kCPU, 7);
  nn::Materialize(*b, at::kCPU, 7);
  auto left = a->named_parameters(), right = b->named_parameters();
  for (const auto& item : left) EXPECT_TRUE(item.value().equal(right[item.key()])) << item.key();
  nn::Materialize(*b, at::kCPU, 8);
  EXPECT_FALSE(left["output.weight"].equal(b->named_parameters()["output.weight"]));
  EXPECT_FALSE(
      left["layers.0.feed_forward.w1.weight"].equal(left["layers.1.feed_forward.w1.weight"]));
}

TEST(Models, UnknownNamesSuggestTheNearest) {
  for (auto [name, flavor, expected] :
       {std::tuple{"lama3", "8B", "did you mean llama3?"},
        std::tuple{"llama3", "8b", "did you mean 8B?"},
        std::tuple{"llama3", "7B", "known flavors: tiny, debugmodel, 1B"}}) {
    ExpectError(ErrorCode::kUnknownModel, {expected},
                [&] { BuildModel(name, flavor, {.max_length = 16}); });
  }
}

// Another size is no slip.
TEST(Models, NoOtherSizeIsSuggested) {
  for (auto [name, flavor] : {std::pair{"llama3", "7B"}, std::pair{"llama3", "13B"},
                              std::pair{"qwen3", "7B"}, std::pair{"llama2", "8B"}}) {
    try {
      BuildModel(name, flavor, {.max_length = 16});
      ADD_FAILURE() << flavor;
    } catch (const Error& error) {
      EXPECT_EQ(error.message().find("did you mean"), std::string::npos) << error.message();
    }
  }
}

// torchtitan's flavors that differ by attention alone.
TEST(Models, AttentionIsNoPartOfAFlavor) {
  for (auto [name, flavor, expected] :
       {std::tuple{"deepseek_v3", "16B_sdpa", "--model.flavor 16B --model.attn sdpa"},
        std::tuple{"deepseek_v3", "debugmodel_sdpa", "--model.flavor debugmodel --model.attn sdpa"},
        std::tuple{"llama3", "8b_flex_attn", "--model.flavor 8B --model.attn flex"},
        std::tuple{"llama3", "debugmodel_flex", "--model.flavor debugmodel --model.attn flex"}}) {
    ExpectError(ErrorCode::kUnknownModel, {expected},
                [&] { BuildModel(name, flavor, {.max_length = 16}); });
  }
}

TEST(Models, RefuseSequencesLongerThanTheirPositions) {
  BuildModel("qwen3", "tiny", {.max_length = 40960});
  ExpectError(ErrorCode::kSequenceTooLong, {"40961", "40960", "--training.seq_len"},
              [] { BuildModel("qwen3", "tiny", {.max_length = 40961}); });
  ExpectError(ErrorCode::kSequenceTooLong, {"257", "256"},
              [] { BuildModelFromHf((kFixtures / "llama").string(), {.max_length = 257}); });
}

// One parameter of each way to begin, large enough that several threads fill it.
struct Beginnings : nn::Module {
  Beginnings() {
    AddParameter("normal", normal, {600, 601}, nn::Init::Normal(0.5));
    AddParameter("truncated", truncated, {600, 601}, nn::Init::TruncatedNormal(1.0, 1.5));
    AddParameter("narrow", narrow, {600, 601}, nn::Init::TruncatedNormal(0.02));
    AddParameter("ones", ones, {7}, nn::Init::Ones());
    AddParameter("zeros", zeros, {7}, nn::Init{});
    nn::NameModules(*this);
  }
  nn::Parameter normal, truncated, narrow, ones, zeros;
};

TEST(Init, ValuesDoNotDependOnTheNumberOfThreads) {
  auto one = std::make_shared<Beginnings>(), several = std::make_shared<Beginnings>();
  LimitWorkers(1);
  nn::Materialize(*one, at::kCPU, 3);
  LimitWorkers(4);
  nn::Materialize(*several, at::kCPU, 3);
  LimitWorkers(0);
  for (const auto& item : one->named_parameters()) {
    EXPECT_TRUE(item.value().equal(several->named_parameters()[item.key()])) << item.key();
  }
}

// Large enough for several pieces, which end in the middle of a dimension.
struct LargeBeginning : nn::Module {
  LargeBeginning() {
    AddParameter("large", large, {3, 700, 1001}, nn::Init::TruncatedNormal(0.02, 0.06));
    nn::NameModules(*this);
  }
  nn::Parameter large;
};

uint64_t HashOfParameters(const torch::nn::Module& module) {
  Xxh64 hash;
  for (const auto& item : module.named_parameters()) {
    at::Tensor values = item.value().detach().cpu().contiguous();
    hash.Update({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
  }
  return hash.Digest();
}

// A run with a given seed begins with the same bits in every version of the program. The numbers were
// taken when each value was still computed by itself on one thread.
void ExpectEarlierBits(at::Device device) {
  struct Golden {
    const char* family;
    const char* flavor;
    at::ScalarType dtype;
    uint64_t hash;
  };
  constexpr Golden kModels[] = {
      {"llama3", "tiny", at::kFloat, 0x7429e5266b78ed29},
      {"llama3", "tiny", at::kBFloat16, 0x8dde8a9caa8b265f},
      {"qwen3", "tiny", at::kFloat, 0xb0e05be1ff06f255},
      {"qwen3", "tiny", at::kBFloat16, 0x183d35b432e65efa},
      {"qwen3", "tiny_moe", at::kFloat, 0xce0fe2d29de4b7c2},
      {"qwen3", "tiny_moe", at::kBFloat16, 0x64fe8ba4b83c4687},
      {"deepseek_v3", "tiny", at::kFloat, 0x43469cee5ff24a2f},
      {"deepseek_v3", "tiny", at::kBFloat16, 0x0190dca50952d4e4},
  };
  for (const Golden& golden : kModels) {
    auto model =
        BuildModel(golden.family, golden.flavor, {.max_length = 16, .layers = 2, .vocab = 256});
    nn::Materialize(*model, device, 42, golden.dtype);
    EXPECT_EQ(HashOfParameters(*model), golden.hash) << golden.family << " " << golden.flavor;
  }
  auto all = std::make_shared<Beginnings>();
  nn::Materialize(*all, device, 3);
  EXPECT_EQ(HashOfParameters(*all), 0x44879866a6f69f4b);
}

TEST(Init, BitsAreThoseOfEarlierVersions) { ExpectEarlierBits(at::kCPU); }

TEST(Init, BitsAreThoseOfEarlierVersions_gpu) {
  ExpectEarlierBits(ChooseDevice(DeviceChoice::kCuda));
}

TEST(Init, BitsOfPartsAreThoseOfEarlierVersions) {
  auto parts = std::make_shared<Beginnings>();
  parts->KeepPart("normal", {{600, 601}, {37, 5}, {411, 333}});
  parts->KeepPart("truncated", {{600, 601}, {599, 0}, {1, 601}});
  parts->KeepPart("narrow", {{600, 601}, {0, 600}, {600, 1}});
  parts->KeepPart("ones", {{7}, {3}, {0}});
  nn::Materialize(*parts, at::kCPU, -3);
  EXPECT_EQ(HashOfParameters(*parts), 0xc3011d33b1bd3609);
  nn::Materialize(*parts, at::kCPU, -3, at::kHalf);
  EXPECT_EQ(HashOfParameters(*parts), 0xb053a61869c8591b);
  struct Golden {
    at::ScalarType dtype;
    uint64_t whole, part;
  };
  for (const Golden& golden : {Golden{at::kFloat, 0x3a310a31dee7edf1, 0x157dae4a2cdafaa4},
                               Golden{at::kBFloat16, 0x352738c8127af229, 0xc37e3b1a5b37030e}}) {
    auto whole = std::make_shared<LargeBeginning>(), part = std::make_shared<LargeBeginning>();
    part->KeepPart("large", {{3, 700, 1001}, {1, 0, 13}, {2, 700, 977}});
    nn::Materialize(*whole, at::kCPU, 11, golden.dtype);
    nn::Materialize(*part, at::kCPU, 11, golden.dtype);
    EXPECT_EQ(HashOfParameters(*whole), golden.whole);
    EXPECT_EQ(HashOfParameters(*part), golden.part);
  }
}

TEST(Init, DistributionsAreTheOnesAskedFor) {
  auto module = std::make_shared<Beginnings>();
  nn::Materialize(*module, at::kCPU, 11);
  auto mean = [](const nn::Parameter& p) { return p.stored().mean().item<double>(); };
  auto deviation = [](const nn::Parameter& p) { return p.stored().std().item<double>(); };
  auto largest = [](const nn::Parameter& p) { return p.stored().abs().max().item<double>(); };
  // Five standard errors of 360600 draws.
  EXPECT_NEAR(mean(module->normal), 0.0, 5 * 0.5 / 600);
  EXPECT_NEAR(deviation(module->normal), 0.5, 5 * 0.5 / 850);
  EXPECT_GT(largest(module->normal), 1.9);
  // A normal distribution cut at 1.5 has variance 1 - 2 * 1.5 * density(1.5) / (share kept).
  EXPECT_NEAR(mean(module->truncated), 0.0, 5 * 0.743 / 600);
  EXPECT_NEAR(deviation(module->truncated), 0.7426, 0.005);
  EXPECT_LE(largest(module->truncated), 1.5 + 1e-6);
  EXPECT_GT(largest(module->truncated), 1.49);
  // A cut a hundred deviations away cuts nothing.
  EXPECT_NEAR(deviation(module->narrow), 0.02, 5 * 0.02 / 850);
  EXPECT_TRUE(module->ones.stored().equal(at::ones({7})));
  EXPECT_TRUE(module->zeros.stored().equal(at::zeros({7})));
}

// A copy of a reference checkpoint, to be spoiled.
class SpoiledFolder {
 public:
  explicit SpoiledFolder(const std::string& fixture) {
    for (const auto& file : fs::directory_iterator(kFixtures / fixture)) {
      fs::copy_file(file.path(), folder_ / file.path().filename().string());
    }
  }
  std::string path() const { return folder_.path().string(); }

  json Config() const { return json::parse(testing::ReadText(folder_ / "config.json")); }
  void SetConfig(const json& config) const { WriteText(folder_ / "config.json", config.dump()); }
  void SetConfigText(std::string_view text) const { WriteText(folder_ / "config.json", text); }

  std::map<std::string, at::Tensor> Weights() const {
    std::map<std::string, at::Tensor> weights;
    SafetensorsFolder files(folder_.path());
    for (const TensorEntry& entry : files.tensors()) {
      at::Tensor tensor = at::empty(entry.sizes, ToTorch(entry.dtype));
      std::memcpy(tensor.mutable_data_ptr(), entry.bytes.data(), entry.bytes.size());
      weights.emplace(entry.name, tensor);
    }
    return weights;
  }
  void SetWeights(const std::map<std::string, at::Tensor>& weights) const {
    std::vector<TensorSource> sources;
    for (const auto& [name, tensor] : weights) {
      std::span bytes(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes());
      sources.push_back(
          SourceOf(name, FromTorch(tensor.scalar_type()), tensor.sizes().vec(), bytes));
    }
    WriteSafetensorsFolder(folder_.path(), sources, int64_t{1} << 30);
  }

 private:
  TempFolder folder_;
};

struct BadConfig {
  const char* fixture;
  const char* key;    // that is changed
  const char* value;  // as JSON; empty: the key is removed
  const char* named;  // what the message must contain besides the file
  const char* also = "";
};

std::ostream& operator<<(std::ostream& out, const BadConfig& bad) {
  return out << bad.fixture << ": " << bad.key << " = " << (*bad.value ? bad.value : "(missing)");
}

class BadHfConfigTest : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadHfConfigTest, IsOneErrorThatNamesFileAndKey) {
  const BadConfig& bad = GetParam();
  SpoiledFolder folder(bad.fixture);
  json config = folder.Config();
  if (*bad.value == '\0') {
    config.erase(bad.key);
  } else {
    config[bad.key] = json::parse(bad.value);
  }
  folder.SetConfig(config);
  ExpectError(ErrorCode::kBadHfConfig, {"config.json", bad.named, bad.also},
              [&] { BuildModelFromHf(folder.path(), {.max_length = 16}); });
}

constexpr BadConfig kBadConfigs[] = {
    // Missing.
    {"llama", "model_type", "", "model_type"},
    {"llama", "vocab_size", "", "vocab_size"},
    {"llama", "hidden_size", "null", "hidden_size"},
    {"llama", "num_hidden_layers", "", "num_hidden_layers"},
    {"llama", "num_attention_heads", "", "num_attention_heads"},
    {"llama", "intermediate_size", "", "intermediate_size"},
    {"llama", "max_position_embeddings", "", "max_position_embeddings"},
    {"qwen3_moe", "moe_intermediate_size", "", "moe_intermediate_size"},
    {"qwen3_moe", "num_experts_per_tok", "", "num_experts_per_tok"},
    {"deepseek_v3", "kv_lora_rank", "", "kv_lora_rank"},
    {"deepseek_v3", "n_routed_experts", "", "n_routed_experts"},
    {"deepseek_v3", "v_head_dim", "", "v_head_dim"},
    // Of another type, or no such number.
    {"llama", "model_type", "3", "model_type", "string"},
    {"llama", "hidden_size", "\"64\"", "hidden_size", "\"64\""},
    {"llama", "hidden_size", "64.5", "hidden_size", "64.5"},
    {"llama", "num_hidden_layers", "0", "num_hidden_layers", "from 1"},
    {"llama", "num_hidden_layers", "-2", "num_hidden_layers", "-2"},
    {"llama", "vocab_size", "9223372036854775807", "vocab_size"},
    {"llama", "vocab_size", "18446744073709551615", "vocab_size"},
    {"llama", "rms_norm_eps", "\"small\"", "rms_norm_eps", "number"},
    {"llama", "tie_word_embeddings", "1", "tie_word_embeddings", "true or false"},
    {"llama", "rope_parameters", "[]", "rope_parameters", "object"},
    {"llama", "rope_parameters", "{\"rope_theta\": 0}", "rope_theta", "above 1"},
    {"llama", "rope_parameters", "{\"rope_type\": \"linear\"}", "factor", "missing"},
    {"llama", "rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 0.5}", "factor"},
    {"llama", "rope_parameters", "{\"rope_type\": \"llama3\", \"factor\": 8}", "low_freq_factor"},
    {"qwen3_moe", "mlp_only_layers", "\"0\"", "mlp_only_layers", "list"},
    {"qwen3_moe", "mlp_only_layers", "[0.5]", "mlp_only_layers", "list"},
    // Sizes that do not fit together.
    {"llama", "num_key_value_heads", "3", "num_key_value_heads", "divide"},
    {"llama", "num_key_value_heads", "0", "num_key_value_heads", "divide"},
    {"llama", "head_dim", "7", "head_dim", "even"},
    {"qwen3_moe", "num_experts_per_tok", "9", "num_experts_per_tok", "larger"},
    {"qwen3_moe", "decoder_sparse_step", "0", "decoder_sparse_step", "at least 1"},
    {"deepseek_v3", "n_group", "3", "n_group", "divide"},
    {"deepseek_v3", "topk_group", "2", "topk_group", "larger"},
    {"deepseek_v3", "num_experts_per_tok", "9", "num_experts_per_tok", "larger"},
    {"deepseek_v3_full", "num_experts_per_tok", "5", "num_experts_per_tok", "groups"},
    {"deepseek_v3", "qk_rope_head_dim", "7", "qk_rope_head_dim", "even"},
    // What gt does not compute.
    {"llama", "model_type", "\"lama\"", "model_type", "did you mean llama?"},
    {"llama", "model_type", "\"gpt2\"", "model_type", "deepseek_v3"},
    {"llama", "attention_bias", "true", "attention_bias"},
    {"qwen3", "attention_bias", "true", "attention_bias"},
    {"deepseek_v3", "attention_bias", "true", "attention_bias"},
    {"llama", "mlp_bias", "true", "mlp_bias"},
    {"llama", "hidden_act", "\"gelu\"", "hidden_act", "gelu"},
    {"qwen3", "use_sliding_window", "true", "use_sliding_window"},
    {"llama", "rope_parameters", "{\"rope_type\": \"longrope\"}", "rope_type", "longrope"},
    {"llama", "rope_parameters", "{\"type\": \"dynamic\", \"factor\": 2}", "rope_type", "dynamic"},
    {"llama", "quantization_config", "{\"quant_method\": \"fp8\"}", "quantization_config"},
    {"deepseek_v3", "quantization_config", "{\"quant_method\": \"fp8\"}", "quantization_config"},
    {"deepseek_v3", "scoring_func", "\"tanh\"", "scoring_func", "tanh"},
};

INSTANTIATE_TEST_SUITE_P(Models, BadHfConfigTest, ::testing::ValuesIn(kBadConfigs),
                         [](const auto& info) {
                           return std::string(info.param.fixture) + "_" + info.param.key + "_" +
                                  std::to_string(info.index);
                         });

TEST(HfConfig, FilesThatAreNoConfigAreErrorsToo) {
  SpoiledFolder folder("llama");
  for (const char* text : {"", "{", "[1, 2]", "\xff\xfe", "{\"a\": 1} x"}) {
    folder.SetConfigText(text);
    ExpectError(ErrorCode::kBadHfConfig, {"config.json", "JSON"},
                [&] { BuildModelFromHf(folder.path(), {.max_length = 16}); });
  }
  // Keys that gt does not know are exported again after training, when it is too late for an error.
  const json config = SpoiledFolder("llama").Config();
  for (const int levels : {65, 50'000, 1'000'000}) {
    std::string text = config.dump();
    text.pop_back();
    text += ", \"custom\": " + std::string(levels, '[') + std::string(levels, ']') + "}";
    folder.SetConfigText(text);
    ExpectError(ErrorCode::kBadHfConfig, {"config.json", "nested more than 64 levels deep"},
                [&] { BuildModelFromHf(folder.path(), {.max_length = 16}); });
  }
  fs::remove(fs::path(folder.path()) / "config.json");
  ExpectError(ErrorCode::kBadHfConfig, {"config.json", "--model.hf_path"},
              [&] { BuildModelFromHf(folder.path(), {.max_length = 16}); });
}

// Each number is one that some model might have, but not all of them together.
TEST(HfConfig, SizesThatNoMachineHoldsAreErrors) {
  SpoiledFolder folder("llama");
  json config = folder.Config();
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size"}) {
    config[key] = int64_t{1} << 28;
  }
  folder.SetConfig(config);
  ExpectError(ErrorCode::kDoesNotFit, {"config.json", "268435456"},
              [&] { BuildModelFromHf(folder.path(), {.max_length = 16}); });
  config = SpoiledFolder("llama").Config();
  config["head_dim"] = int64_t{1} << 28;
  config["max_position_embeddings"] = int64_t{1} << 28;
  folder.SetConfig(config);
  ExpectError(ErrorCode::kDoesNotFit, {"config.json", "--training.seq_len"},
              [&] { BuildModelFromHf(folder.path(), {.max_length = 1 << 20}); });
}

TEST_F(HfCheckpoint, OfManyProblemsSomeAreListed) {
  SpoiledFolder folder("llama");
  auto weights = folder.Weights();
  for (int i = 0; i < 1300; ++i) weights[fmt::format("extra.{}", i)] = at::zeros({1});
  folder.SetWeights(weights);
  ModelPtr model = BuildModelFromHf(folder.path(), {.max_length = 16});
  try {
    LoadHfWeights(*model, folder.path());
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kWeightsMismatch);
    EXPECT_NE(error.message().find("1300 places"), std::string::npos) << error.what();
    EXPECT_NE(error.message().find("and 1,280 more"), std::string::npos) << error.what();
  }
}

// All that is wrong in one error, and nothing is loaded then.
TEST_F(HfCheckpoint, WeightsThatDoNotFitAreListedTogether) {
  SpoiledFolder folder("llama");
  auto weights = folder.Weights();
  weights.erase("model.norm.weight");
  weights["model.layers.1.self_attn.q_proj.weight"] = at::zeros({64, 60});
  weights["model.layers.0.mlp.up_proj.weight"] = at::zeros({112, 64}, at::kLong);
  weights["model.layers.7.extra"] = at::zeros({3});
  folder.SetWeights(weights);
  ModelPtr model = BuildModelFromHf(folder.path(), {.max_length = 16});
  nn::Materialize(*model, at::kCPU, 5);
  at::Tensor before = model->named_parameters()["tok_embeddings.weight"].clone();
  ExpectError(
      ErrorCode::kWeightsMismatch,
      {"4 places", "missing: model.norm.weight [64]",
       "model.layers.1.self_attn.q_proj.weight has shape [64, 60], the model wants [64, 64]",
       "model.layers.0.mlp.up_proj.weight is I64", "not known: model.layers.7.extra [3]"},
      [&] { LoadHfWeights(*model, folder.path()); });
  EXPECT_TRUE(before.equal(model->named_parameters()["tok_embeddings.weight"]));
}

// What every tensor of a checkpoint puts into ours, by assigning to a view of the whole.
void AssignWhole(const HfTensor& entry, const at::Tensor& stored, at::Tensor& ours) {
  at::Tensor view = entry.view ? entry.view(ours) : ours;
  if (entry.rows.empty()) {
    view.copy_(stored.view(view.sizes()));
  } else {
    view.index_copy_(0, at::tensor(entry.rows, at::kLong),
                     stored.view(view.sizes()).to(at::kFloat));
  }
}

// Read in pieces, and in the pieces of a part, as ranks and threads do.
TEST_F(HfCheckpoint, AnyPartOfATensorIsReadByItself) {
  const SpoiledFolder halves("deepseek_v3");
  json config = halves.Config();
  config["rope_interleave"] = false;
  halves.SetConfig(config);
  at::manual_seed(1);
  for (const ModelPtr& model : {BuildModel("llama3", "tiny", {.max_length = 16}),
                                BuildModel("qwen3", "tiny_moe", {.max_length = 16}),
                                BuildModel("deepseek_v3", "tiny", {.max_length = 16}),
                                BuildModelFromHf(halves.path(), {.max_length = 16})}) {
    std::map<std::string, std::vector<int64_t>> sizes;
    for (const nn::StateTensor& state : nn::NamedState(*model)) sizes[state.name] = state.box.whole;
    std::map<std::string, at::Tensor> expected, filled;
    for (const HfTensor& entry : model->HfTensors()) {
      const std::vector<int64_t>& whole = sizes.at(entry.target);
      for (auto* ours : {&expected, &filled}) ours->try_emplace(entry.target, at::zeros(whole));
      at::Tensor stored = at::rand(entry.sizes, at::kBFloat16);
      AssignWhole(entry, stored, expected.at(entry.target));
      HfMapping mapping(entry, whole);
      at::Tensor arranged = mapping.Arrange(stored);
      EXPECT_EQ(arranged.const_data_ptr(), stored.const_data_ptr()) << entry.name << " is copied";
      for (const TensorBox& box : SplitBox(TensorBox::All(whole), 50)) {
        mapping.Fill(arranged, ViewOfBox(filled.at(entry.target), TensorBox::All(whole), box), box,
                     [](const at::Tensor&) {});
      }
    }
    for (const auto& [name, ours] : expected) EXPECT_TRUE(ours.equal(filled.at(name))) << name;
  }
}

at::Tensor LogitsOf(const std::string& folder) {
  at::NoGradGuard no_gradients;
  ModelPtr model = BuildModelFromHf(folder, {.max_length = 16});
  nn::Allocate(*model, at::kCPU);
  LoadHfWeights(*model, folder);
  at::Tensor tokens = at::arange(32).view({2, 16}) * 7;
  return model->Logits({tokens, at::arange(16).expand({2, 16})});
}

// As on a rank that keeps a part of every matrix.
TEST_F(HfCheckpoint, ARankReadsItsPartOfTheWeights) {
  std::string folder = (kFixtures / "llama").string();
  ModelPtr whole = BuildModelFromHf(folder, {.max_length = 16}),
           part = BuildModelFromHf(folder, {.max_length = 16});
  for (nn::Module* module : nn::ModulesOf(*part)) {
    module->ForEachParameter([&](const std::string& name, nn::Parameter& parameter) {
      TensorBox box = parameter.box();
      for (size_t d = 0; d < box.sizes.size(); ++d) {
        box.offset[d] = box.sizes[d] / 3;
        box.sizes[d] -= box.offset[d] + 1;
      }
      module->KeepPart(name, box);
    });
  }
  for (const ModelPtr& model : {whole, part}) {
    nn::Allocate(*model, at::kCPU, at::kBFloat16);
    LoadHfWeights(*model, folder);
  }
  std::vector<nn::StateTensor> expected = nn::NamedState(*whole), loaded = nn::NamedState(*part);
  for (size_t i = 0; i < expected.size(); ++i) {
    at::Tensor values = ViewOfBox(expected[i].tensor, expected[i].box, loaded[i].box);
    EXPECT_TRUE(values.equal(loaded[i].tensor)) << loaded[i].name;
  }
}

// Early writers did not pad the header: then no tensor is aligned for its type.
TEST_F(HfCheckpoint, WeightsMayBeginAtAnyByte) {
  SpoiledFolder folder("llama");
  at::Tensor expected = LogitsOf(folder.path());
  fs::path file = fs::path(folder.path()) / "model.safetensors";
  std::string bytes = testing::ReadText(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  bytes.insert(sizeof length + length, " ");
  ++length;
  std::memcpy(bytes.data(), &length, sizeof length);
  WriteText(file, bytes);
  EXPECT_TRUE(expected.equal(LogitsOf(folder.path())));
}

// Row 2i + part of the last `rope` rows of each head becomes row part * rope / 2 + i.
at::Tensor PairsToHalves(const at::Tensor& weight, int64_t heads, int64_t rope) {
  at::Tensor by_head = weight.view({heads, -1, weight.size(1)}).clone();
  int64_t plain = by_head.size(1) - rope;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < rope; ++i) {
      int64_t to = (i % 2) * (rope / 2) + i / 2;
      by_head[h][plain + to].copy_(weight[h * by_head.size(1) + plain + i]);
    }
  }
  return by_head.view(weight.sizes());
}

TEST_F(HfCheckpoint, RotaryChannelsMayBePairedInHalves) {
  constexpr int64_t kHeads = 4;
  for (const char* fixture : {"deepseek_v3", "deepseek_v3_full"}) {
    SpoiledFolder folder(fixture);
    at::Tensor expected = LogitsOf(folder.path());
    json config = folder.Config();
    config["rope_interleave"] = false;
    folder.SetConfig(config);
    EXPECT_FALSE(expected.allclose(LogitsOf(folder.path()))) << "the flag changes nothing";
    auto weights = folder.Weights();
    int64_t rope = config["qk_rope_head_dim"];
    for (auto& [name, tensor] : weights) {
      if (name.ends_with("q_proj.weight") || name.ends_with("q_b_proj.weight")) {
        tensor = PairsToHalves(tensor, kHeads, rope);
      } else if (name.ends_with("kv_a_proj_with_mqa.weight")) {
        tensor = PairsToHalves(tensor, 1, rope);
      }
    }
    folder.SetWeights(weights);
    EXPECT_TRUE(expected.equal(LogitsOf(folder.path()))) << fixture;
    // And it is written in the order in which it was read.
    ModelPtr model = BuildModelFromHf(folder.path(), {.max_length = 16});
    nn::Allocate(*model, at::kCPU);
    LoadHfWeights(*model, folder.path());
    SpoiledFolder out(fixture);
    SaveHfFolder(*model, out.path(), at::kFloat);
    auto written = out.Weights();
    for (const auto& [name, tensor] : weights) EXPECT_TRUE(tensor.equal(written.at(name))) << name;
    EXPECT_EQ(out.Config()["rope_interleave"], false);
  }
}

nn::MoeConfig FourExperts() {
  return {.width = 16, .experts = 4, .hidden = 8, .top_k = 2, .bias = true, .load_balance = 0.1};
}

std::shared_ptr<nn::Moe> MakeMoe(const nn::MoeConfig& config) {
  nn::Init init = nn::Init::Normal(0.3);
  auto moe = std::make_shared<nn::Moe>(config, nn::MoeInits{init, init, init});
  nn::NameModules(*moe);
  nn::Materialize(*moe, at::kCPU, 1);
  return moe;
}

at::Tensor BufferOf(nn::Module& module, const char* name) { return module.named_buffers()[name]; }

at::Tensor SomeTokens() {
  at::manual_seed(4);
  return at::randn({2, 24, 16});
}

TEST_F(Moe, BiasesMoveTowardBalance) {
  auto moe = MakeMoe(FourExperts());
  at::Tensor counts = BufferOf(*moe, "tokens_per_expert"), bias = BufferOf(*moe, "expert_bias");
  // Above the mean of 2 goes down, below it goes up, and what all have in common is taken out.
  counts.copy_(at::tensor({8.0, 0.0, 0.0, 0.0}));
  moe->BalanceLoad(moe->tokens_per_expert());
  EXPECT_TRUE(bias.allclose(at::tensor({-0.15f, 0.05f, 0.05f, 0.05f}))) << bias;
  EXPECT_TRUE(counts.equal(at::zeros({4}))) << "counting begins anew";
  // The next step adds to it; an expert at the mean stays.
  counts.copy_(at::tensor({1.0, 3.0, 2.0, 2.0}));
  moe->BalanceLoad(moe->tokens_per_expert());
  EXPECT_TRUE(bias.allclose(at::tensor({-0.05f, -0.05f, 0.05f, 0.05f}))) << bias;
}

TEST_F(Moe, BiasesStayWhereBalancingIsOff) {
  nn::MoeConfig config = FourExperts();
  config.load_balance = 0.0;
  auto moe = MakeMoe(config);
  BufferOf(*moe, "tokens_per_expert").copy_(at::tensor({8.0, 0.0, 0.0, 0.0}));
  moe->BalanceLoad(moe->tokens_per_expert());
  EXPECT_TRUE(BufferOf(*moe, "expert_bias").equal(at::zeros({4})));
  EXPECT_TRUE(BufferOf(*moe, "tokens_per_expert").equal(at::zeros({4})));
}

TEST_F(Moe, BalancingEvensTheLoadOut) {
  nn::MoeConfig config = FourExperts();
  config.load_balance = 0.01;
  auto moe = MakeMoe(config);
  at::NoGradGuard no_gradients;
  at::Tensor counts = BufferOf(*moe, "tokens_per_expert");
  auto spread = [&] {
    moe->forward(SomeTokens());
    return (counts.max() - counts.min()).item<double>();
  };
  double before = spread();
  for (int i = 0; i < 30; ++i) {
    moe->BalanceLoad(moe->tokens_per_expert());
    spread();
  }
  moe->BalanceLoad(moe->tokens_per_expert());
  EXPECT_GE(before, 6) << "nothing to even out";
  EXPECT_LE(spread(), before / 2);
}

TEST_F(Moe, CountsAreDeterministicAndKeptInTrainingAlone) {
  auto moe = MakeMoe(FourExperts());
  at::NoGradGuard no_gradients;
  at::Tensor counts = BufferOf(*moe, "tokens_per_expert");
  at::Tensor first = moe->forward(SomeTokens()), counted = counts.clone();
  EXPECT_EQ(counted.sum().item<double>(), 2 * 24 * 2);
  EXPECT_TRUE(moe->forward(SomeTokens()).equal(first));
  EXPECT_TRUE(counts.equal(counted * 2)) << "counts add up until they are used";
  moe->eval();
  EXPECT_TRUE(moe->forward(SomeTokens()).equal(first));
  EXPECT_TRUE(counts.equal(counted * 2)) << "validation does not count";
}

// A bias decides who is chosen, not how much the chosen one counts.
TEST_F(Moe, BiasChoosesButDoesNotWeigh) {
  auto moe = MakeMoe(FourExperts());
  at::NoGradGuard no_gradients;
  BufferOf(*moe, "expert_bias").copy_(at::tensor({0.0, 9.0, 0.0, 9.0}));
  moe->forward(SomeTokens());
  EXPECT_TRUE(BufferOf(*moe, "tokens_per_expert").equal(at::tensor({0.0f, 48.0f, 0.0f, 48.0f})));
  nn::MoeConfig all = FourExperts();
  all.top_k = 4;
  auto everybody = MakeMoe(all);
  at::Tensor plain = everybody->forward(SomeTokens());
  BufferOf(*everybody, "expert_bias").copy_(at::tensor({0.0, 9.0, -5.0, 3.0}));
  EXPECT_TRUE(everybody->forward(SomeTokens()).allclose(plain, 1e-5, 1e-6));
}

TEST_F(Moe, ForcedBalanceTakesExpertsInTurn) {
  nn::MoeConfig config = FourExperts();
  config.force_balance = true;
  auto moe = MakeMoe(config);
  at::NoGradGuard no_gradients;
  moe->forward(SomeTokens());
  EXPECT_TRUE(BufferOf(*moe, "tokens_per_expert").equal(at::full({4}, 24.0f)));
}

// As they are drawn on paper, whatever the router and its groups would choose; gradients still flow.
TEST_F(Moe, ForcedLoadsAreDrawnByWeight) {
  nn::MoeConfig config = FourExperts();
  config.experts = 16;
  config.top_k = 3;
  nn::Init init = nn::Init::Normal(0.3);
  auto router = std::make_shared<nn::Router>(config, init);
  std::vector<double> weights = ZipfWeights(16, 1.0);
  weights[5] = 0;
  router->ForceLoad(weights);
  nn::NameModules(*router);
  nn::Materialize(*router, at::kCPU, 1);
  at::manual_seed(4);
  constexpr int64_t kTokens = 3000;
  nn::Routing routing = router->forward(at::randn({kTokens, 16}), {});
  EXPECT_EQ(routing.experts.sizes(), (at::IntArrayRef{kTokens, 3}));
  at::Tensor sorted = std::get<0>(routing.experts.sort(1));
  EXPECT_TRUE((sorted.narrow(1, 1, 2) > sorted.narrow(1, 0, 2)).all().item<bool>())
      << "every token goes to three different experts";
  const std::vector<int64_t> expected = DrawCounts(weights, 3, kTokens);
  for (int64_t i = 0; i < 16; ++i) {
    EXPECT_NEAR(routing.counts[i].item<double>(),
                static_cast<double>(expected[static_cast<size_t>(i)]), 2)
        << i;
  }
  EXPECT_EQ(routing.counts[5].item<int64_t>(), 0);
  routing.weights.sum().backward();
  EXPECT_TRUE(router->parameters()[0].grad().defined());
}

}  // namespace
}  // namespace gt::model_test
