#include "gt/train/model_report.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/compile/configured_model.h"
#include "gt/job/config.h"
#include "gt/torch_bridge/cpu_memory.h"

namespace gt::model_report_test {
namespace {

Config Model(const std::string& name, const std::string& flavor, int64_t length = 64) {
  Config config;
  config.model.name = name;
  config.model.flavor = flavor;
  config.training.seq_len = length;
  return config;
}

ParallelDegrees Degrees(int64_t shard, int64_t tensor, int64_t expert) {
  return {.data_parallel_shard = shard, .tensor_parallel = tensor, .expert_parallel = expert};
}

int64_t Parameters(const ModelReport& report, ModelPart part) {
  for (const PartReport& row : report.parts) {
    if (row.part == part) return row.parameters;
  }
  return 0;
}

TEST(ModelReport, PartsOfEveryFlavorAddUp) {
  for (const ModelFamily& family : ModelFamilies()) {
    for (const std::string& flavor : family.flavors) {
      Config config = Model(family.name, flavor);
      ModelReport report = ReportOnModel(config);
      ModelPtr model = BuildConfiguredModel(config);
      EXPECT_EQ(report.parameters, nn::ParameterCount(*model)) << family.name << " " << flavor;
      EXPECT_EQ(report.Sum().parameters, report.parameters) << family.name << " " << flavor;
      EXPECT_EQ(report.active_parameters, model->ActiveParameters());
      EXPECT_EQ(report.flops_per_token, model->FlopsPerToken(64));
      // Families of other tests may have parts that the report has no name for.
      bool ours = family.name == "llama3" || family.name == "qwen3" || family.name == "deepseek_v3";
      if (ours) EXPECT_EQ(Parameters(report, ModelPart::kOther), 0) << family.name << " " << flavor;
    }
  }
}

// Counted by hand from the published widths.
TEST(ModelReport, PartsOfPublishedModels) {
  ModelReport llama = ReportOnModel(Model("llama3", "8B"));
  EXPECT_EQ(llama.parameters, 8'030'261'248);
  EXPECT_EQ(Parameters(llama, ModelPart::kEmbedding), int64_t{128256} * 4096);
  EXPECT_EQ(Parameters(llama, ModelPart::kHead), int64_t{128256} * 4096);
  EXPECT_EQ(Parameters(llama, ModelPart::kAttention),
            int64_t{32} * 4096 * (4096 + 2 * 1024 + 4096));
  EXPECT_EQ(Parameters(llama, ModelPart::kDenseFfn), int64_t{32} * 3 * 4096 * 14336);
  EXPECT_EQ(Parameters(llama, ModelPart::kNorms), (2 * 32 + 1) * 4096);
  EXPECT_EQ(llama.parts.size(), 5u);
  EXPECT_EQ(llama.active_parameters, 8'030'261'248 - int64_t{128256} * 4096);

  ModelReport qwen = ReportOnModel(Model("qwen3", "30B-A3B"));
  EXPECT_EQ(qwen.parameters, 30'532'122'624);
  EXPECT_EQ(Parameters(qwen, ModelPart::kRoutedExperts), int64_t{48} * 128 * 3 * 2048 * 768);
  EXPECT_EQ(Parameters(qwen, ModelPart::kRouter), int64_t{48} * 128 * 2048);
  EXPECT_EQ(Parameters(qwen, ModelPart::kDenseFfn), 0);
  // 8 of 128 experts, and no embedding.
  EXPECT_EQ(qwen.active_parameters,
            qwen.parameters - int64_t{151936} * 2048 - int64_t{48} * 120 * 3 * 2048 * 768);

  ModelReport deepseek = ReportOnModel(Model("deepseek_v3", "671B"));
  EXPECT_EQ(deepseek.parameters, 671'026'404'352);
  EXPECT_EQ(Parameters(deepseek, ModelPart::kDenseFfn), int64_t{3} * 3 * 7168 * 18432);
  EXPECT_EQ(Parameters(deepseek, ModelPart::kRoutedExperts), int64_t{58} * 256 * 3 * 7168 * 2048);
  EXPECT_EQ(Parameters(deepseek, ModelPart::kSharedExperts), int64_t{58} * 3 * 7168 * 2048);
  EXPECT_EQ(deepseek.active_parameters,
            deepseek.parameters - int64_t{129280} * 7168 - int64_t{58} * 248 * 3 * 7168 * 2048);
}

TEST(ModelReport, TiedHeadsCountOnce) {
  ModelReport report = ReportOnModel(Model("llama3", "1B"));
  EXPECT_TRUE(report.tied);
  EXPECT_EQ(Parameters(report, ModelPart::kHead), 0);
  EXPECT_NE(ToTable(report).find("the head is the embedding"), std::string::npos);
}

TEST(ModelReport, MemoryIsDividedByAllRanks) {
  Config config = Model("qwen3", "30B-A3B");
  config.training.dtype = TrainingDtype::kBfloat16;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  ModelReport whole = ReportOnModel(config);
  EXPECT_EQ(whole.Sum().parameter_bytes, 2 * whole.parameters);
  EXPECT_EQ(whole.Sum().gradient_bytes, 2 * whole.parameters);
  EXPECT_EQ(whole.Sum().optimizer_bytes, 4 * whole.parameters);
  EXPECT_EQ(whole.weight_copy_bytes, 0);
  ModelReport split = ReportOnModel(config, Degrees(16, 4, 8));
  for (size_t i = 0; i < whole.parts.size(); ++i) {
    EXPECT_EQ(split.parts[i].parameter_bytes, whole.parts[i].parameter_bytes / 64)
        << EnumName(whole.parts[i].part);
  }
  EXPECT_EQ(split.activation_bytes, whole.activation_bytes / 4);
  // Two layers: attention and norms by 4 ranks, experts by 8.
  int64_t attention = int64_t{2048} * 128 * (32 + 2 * 4 + 32) + 2 * 128 + 2 * 2048;
  int64_t router = 128 * 2048, experts = int64_t{128} * 3 * 2048 * 768;
  EXPECT_EQ(split.weight_copy_bytes, 2 * 2 * ((attention + router) / 4 + experts / 8));
  config.training.dtype = TrainingDtype::kFloat32;
  ModelReport mixed = ReportOnModel(config);
  EXPECT_EQ(mixed.Sum().parameter_bytes, 4 * whole.parameters);
  EXPECT_EQ(mixed.weight_copy_bytes, 2 * whole.parameters);
  EXPECT_EQ(mixed.activation_bytes, whole.activation_bytes);
}

// --ranks and --parallelism.* mean what they mean for training.
TEST(ModelReport, TakesTheDegreesOfTheJob) {
  Config config = Model("qwen3", "30B-A3B");
  const ModelReport whole = ReportOnModel(config);
  config.ranks = 64;
  config.parallelism.data_parallel_replicate_degree = 2;
  config.parallelism.context_parallel_degree = 2;
  config.parallelism.tensor_parallel_degree = 4;
  config.parallelism.expert_parallel_degree = 8;
  const ModelReport report = ReportOnModel(config, DegreesOf(config));
  EXPECT_EQ(report.degrees.ranks(), 64);
  EXPECT_EQ(report.degrees.data_parallel_shard, 4);
  EXPECT_EQ(report.Sum().parameter_bytes, whole.Sum().parameter_bytes / 32);
  EXPECT_EQ(report.activation_bytes, whole.activation_bytes / 8);
  EXPECT_NE(ToTable(report).find("64 ranks: data_parallel_replicate 2 x data_parallel_shard 4 x "
                                 "context_parallel 2 x tensor_parallel 4, expert_parallel 8"),
            std::string::npos)
      << ToTable(report);
  config.ranks = 24;
  EXPECT_THROW(DegreesOf(config), Error);
}

TEST(ModelReport, DegreesMustDivideWhatTheySplit) {
  auto expect = [](const Config& config, const ParallelDegrees& degrees, const char* part) {
    try {
      ReportOnModel(config, degrees);
      ADD_FAILURE() << "no error for " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConflictingOptions);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  expect(Model("llama3", "8B"), Degrees(1, 3, 1), "32 attention heads");
  expect(Model("llama3", "8B"), Degrees(1, 16, 1), "8 key/value heads");
  expect(Model("llama3", "8B"), Degrees(8, 1, 2), "has none");
  expect(Model("qwen3", "30B-A3B"), Degrees(3, 1, 3), "128 experts");
  expect(Model("qwen3", "30B-A3B"), Degrees(4, 2, 16), "8 ranks");
}

// The estimate against what libtorch keeps for backward after a forward pass.
TEST(ModelReport, ActivationsAreAboutWhatForwardLeavesBehind) {
  int threads = at::get_num_threads();
  at::set_num_threads(1);  // starting threads would take longer than the work
  for (auto [name, flavor] :
       {std::pair{"llama3", "debugmodel"}, std::pair{"llama3", "tiny"}, std::pair{"qwen3", "tiny"},
        std::pair{"qwen3", "tiny_moe"}, std::pair{"deepseek_v3", "tiny"}}) {
    Config config = Model(name, flavor, 128);
    config.training.local_batch_size = 2;
    config.model.n_layers = 2;
    ModelPtr model = BuildConfiguredModel(config);
    nn::Materialize(*model, at::kCPU, 1);
    at::Tensor tokens = at::arange(256).view({2, 128}).remainder(250);
    at::Tensor positions = at::arange(128).expand({2, 128}).contiguous();
    MeterScope kept;
    at::Tensor hidden = model->Hidden({tokens, positions});
    double ratio = static_cast<double>(ReportOnModel(config).activation_bytes) /
                   static_cast<double>(CurrentMeter().current());
    EXPECT_GT(ratio, 0.75) << name << " " << flavor;
    EXPECT_LT(ratio, 1.25) << name << " " << flavor;
  }
  at::set_num_threads(threads);
}

TEST(ModelReport, TableAndJsonSayTheSame) {
  ModelReport report = ReportOnModel(Model("deepseek_v3", "16B"), Degrees(4, 2, 8));
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(ToJson(report).dump());
  EXPECT_EQ(json["parameters"], report.parameters);
  EXPECT_EQ(json["ranks"], 8);
  int64_t sum = 0;
  for (const auto& part : json["parts"]) sum += part["parameters"].get<int64_t>();
  EXPECT_EQ(sum, report.parameters);
  EXPECT_EQ(json["rank_bytes"]["all_estimate"], report.bytes());
  std::string table = ToTable(report);
  for (const char* name : {"embedding", "attention", "dense ffn", "router", "routed experts",
                           "shared experts", "norms", "head", "total", "activations"}) {
    EXPECT_NE(table.find(name), std::string::npos) << name << "\n" << table;
  }
}

}  // namespace
}  // namespace gt::model_report_test
