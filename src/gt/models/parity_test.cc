// Hugging Face transformers is the reference: its checkpoints, loaded here, must give its losses, its
// gradients and its training trajectories, eager and captured. The numbers in tests/parity were
// computed in float64; limits are those of a float32 implementation.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gt/base/error.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/job/config.h"
#include "gt/models/hf_checkpoint.h"
#include "gt/storage/safetensors.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/eager_step.h"
#include "gt/train/step/optimizer.h"
#include "gt/train/step/step.h"

namespace gt::parity_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kFixtures = fs::path(GT_SOURCE_DIR) / "tests" / "parity";

json ReadJson(const fs::path& path) {
  std::ifstream file(path);
  return json::parse(file);
}

at::Tensor Rows(const json& rows) {
  std::vector<int64_t> numbers;
  for (const auto& row : rows) {
    for (const auto& number : row) numbers.push_back(number.get<int64_t>());
  }
  return at::tensor(numbers).view({static_cast<int64_t>(rows.size()), -1});
}

struct Case {
  std::string name;
  CompileMode mode;
  AttentionBackend attention;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name << " " << EnumName(c.mode) << " " << EnumName(c.attention);
}

std::vector<Case> CasesOf(std::initializer_list<const char*> names) {
  std::vector<Case> cases;
  for (const char* name : names) {
    for (CompileMode mode : {CompileMode::kEager, CompileMode::kAotFxTrace}) {
      for (AttentionBackend attention : {AttentionBackend::kSdpa, AttentionBackend::kFlex}) {
        cases.push_back({name, mode, attention});
      }
    }
  }
  return cases;
}

class ParityTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    folder_ = (kFixtures / GetParam().name).string();
    reference_ = ReadJson(folder_ + "/reference.json");
    at::Tensor tokens = Rows(reference_["input_ids"]);
    at::Tensor positions = at::arange(tokens.size(1)).expand_as(tokens).contiguous();
    batch_ = {tokens, Rows(reference_["labels"]), positions, tokens.numel()};
    config_.training.local_batch_size = tokens.size(0);
    config_.training.seq_len = tokens.size(1);
    config_.model.attn = GetParam().attention;
  }

  ModelPtr Load() {
    ModelOptions options;
    options.max_length = config_.training.seq_len;
    options.attention.backend = GetParam().attention;
    ModelPtr model = BuildModelFromHf(folder_, options);
    nn::Allocate(*model, at::kCPU);
    LoadHfWeights(*model, folder_);
    return model;
  }

  std::unique_ptr<TrainStep> Step(LanguageModel& model) {
    if (GetParam().mode == CompileMode::kEager)
      return MakeEagerStep(model, LossConfigOf(config_, model));
    CompiledStep captured = Compile({.model = model, .config = config_, .device = at::kCPU});
    return MakeCapturedStep(model, std::move(captured));
  }

  std::string folder_;
  json reference_;
  Batch batch_;
  Config config_;
};

TEST_P(ParityTest, LossOfEveryToken) {
  ModelPtr model = Load();
  at::NoGradGuard no_gradients;
  at::Tensor logits = model->Logits({batch_.tokens, batch_.positions});
  at::Tensor losses = at::cross_entropy_loss(logits.flatten(0, 1).to(at::kDouble),
                                             batch_.labels.flatten(), {}, at::Reduction::None);
  const json& expected = reference_["per_token_loss_fp64"];
  losses = losses.view(batch_.labels.sizes());
  for (int64_t row = 0; row < losses.size(0); ++row) {
    for (int64_t i = 0; i < losses.size(1); ++i) {
      double wanted = expected[static_cast<size_t>(row)][static_cast<size_t>(i)];
      ASSERT_NEAR(losses[row][i].item<double>(), wanted, 1e-4) << row << ", " << i;
    }
  }
}

TEST_P(ParityTest, LossAndEveryGradient) {
  ModelPtr model = Load();
  StepResult result = Step(*model)->Run(batch_, batch_.valid_tokens);
  EXPECT_NEAR(result.loss.item<double>(), reference_["loss_fp64"].get<double>(), 1e-5);
  std::unordered_map<std::string, std::pair<at::Tensor, at::Tensor>> by_name;  // value, gradient
  auto parameters = model->named_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    by_name[parameters[i].key()] = {parameters[i].value().detach(), result.gradients[i]};
  }
  size_t compared = 0;
  for (const HfTensor& entry : model->HfTensors()) {
    auto found = by_name.find(entry.target);
    if (found == by_name.end()) continue;  // a buffer
    auto view = [&](const at::Tensor& tensor) {
      return (entry.view ? entry.view(tensor) : tensor).to(at::kDouble);
    };
    const json& expected = reference_["gradients"].at(entry.name);
    ASSERT_TRUE(found->second.second.defined()) << entry.name;
    at::Tensor gradient = view(found->second.second);
    double norm = gradient.norm().item<double>(), wanted = expected["norm_fp64"];
    EXPECT_NEAR(norm, wanted, 1e-5 * std::max(wanted, 1e-6)) << entry.name;
    // Unlike the norm, this notices rows that were put in another order.
    double dot = (gradient * view(found->second.first)).sum().item<double>();
    EXPECT_NEAR(dot, expected["dot_param_fp64"].get<double>(), 1e-4 * std::max(wanted, 1e-3))
        << entry.name;
    ++compared;
  }
  EXPECT_EQ(compared, reference_["gradients"].size());
}

TEST_P(ParityTest, TenStepsOfAdamW) {
  for (const auto& [name, expected] : reference_["training"].items()) {
    ModelPtr model = Load();
    auto step = Step(*model);
    std::vector<at::Tensor> parameters = model->parameters();
    AdamW optimizer(NamedParameters(*model), config_.optimizer);
    double max_norm = expected["max_norm"].is_null() ? 0.0 : expected["max_norm"].get<double>();
    for (size_t i = 0; i < expected["loss_fp64"].size(); ++i) {
      StepResult result = step->Run(batch_, batch_.valid_tokens);
      EXPECT_NEAR(result.loss.item<double>(), expected["loss_fp64"][i].get<double>(), 5e-5)
          << name << ", step " << i;
      std::vector<at::Tensor> gradients = OwnGradients(parameters, std::move(result.gradients));
      double factor = ClippingFor(GradientNorm(gradients), max_norm).factor;
      model->BeforeUpdate([](const at::Tensor& counts) { return counts; });
      optimizer.Step(gradients, 1e-3, factor);
    }
  }
}

class RoutingParityTest : public ParityTest {};

TEST_P(RoutingParityTest, CountsTokensOfEveryExpert) {
  ModelPtr model = Load();
  Step(*model)->Run(batch_, batch_.valid_tokens);
  std::vector<at::Tensor> counted;
  for (const auto& buffer : model->named_buffers()) {
    if (buffer.key().ends_with("tokens_per_expert")) counted.push_back(buffer.value());
  }
  ASSERT_EQ(counted.size(), reference_["routing"].size());
  size_t layer = 0;
  for (const auto& [name, routing] : reference_["routing"].items()) {
    const json& expected = routing["tokens_per_expert"];
    for (size_t e = 0; e < expected.size(); ++e) {
      EXPECT_EQ(counted[layer][static_cast<int64_t>(e)].item<double>(), expected[e].get<double>())
          << name << ", expert " << e;
    }
    ++layer;
  }
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return info.param.name + "_" + std::string(EnumName(info.param.mode)) + "_" +
         std::string(EnumName(info.param.attention));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ParityTest,
                         ::testing::ValuesIn(CasesOf({"llama", "llama_sharded", "qwen3",
                                                      "qwen3_moe", "deepseek_v3",
                                                      "deepseek_v3_bias", "deepseek_v3_full"})),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Fixtures, RoutingParityTest,
                         ::testing::ValuesIn(CasesOf({"qwen3_moe", "deepseek_v3",
                                                      "deepseek_v3_bias", "deepseek_v3_full"})),
                         CaseName);

class HfCheckpointTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    out_ = fs::temp_directory_path() / ("gt_hf_test_" + std::to_string(getpid()));
    fs::remove_all(out_);
  }
  void TearDown() override { fs::remove_all(out_); }
  fs::path out_;
};

// What was read is written back the same, byte by byte, whatever order our own tensors keep
// the rows in.
TEST_P(HfCheckpointTest, ExportGivesBackTheSameBytes) {
  std::string folder = (kFixtures / GetParam()).string();
  ModelPtr model = BuildModelFromHf(folder, {.max_length = 16});
  nn::Allocate(*model, at::kCPU);
  LoadHfWeights(*model, folder);
  SaveHfFolder(*model, out_.string(), at::kFloat, folder, /*world=*/nullptr,
               /*max_shard_bytes=*/200'000);
  SafetensorsFolder before(folder), after(out_);
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const TensorEntry& tensor : before.tensors()) {
    const TensorEntry* again = after.Find(tensor.name);
    ASSERT_NE(again, nullptr) << tensor.name;
    EXPECT_EQ(again->sizes, tensor.sizes);
    EXPECT_TRUE(std::equal(tensor.bytes.begin(), tensor.bytes.end(), again->bytes.begin(),
                           again->bytes.end()))
        << tensor.name;
  }
  ModelPtr again = BuildModelFromHf(out_.string(), {.max_length = 16});
  nn::Allocate(*again, at::kCPU);
  LoadHfWeights(*again, out_.string());
}

INSTANTIATE_TEST_SUITE_P(Fixtures, HfCheckpointTest,
                         ::testing::Values("llama", "llama_sharded", "qwen3", "qwen3_moe",
                                           "deepseek_v3", "deepseek_v3_bias", "deepseek_v3_full"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gt::parity_test
