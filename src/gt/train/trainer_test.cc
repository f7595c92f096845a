#include "gt/train/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/job/config.h"
#include "gt/report/progress_bar.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/metrics.h"
#include "gt/train/step/optimizer.h"

namespace gt::trainer_test {
namespace {

namespace fs = std::filesystem;

class TrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("gt_trainer_test_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Config Job(const std::string& name, const std::string& flavor = "tiny") {
    Config config;
    config.device = DeviceChoice::kCpu;
    config.model.flavor = flavor;
    if (flavor == "tiny") config.model.tokenizer_path = "bytes";
    config.training.steps = 5;
    config.training.local_batch_size = 4;
    config.training.seq_len = 32;
    config.training.deterministic = true;
    config.threads = 1;
    config.dump_folder = (folder_ / name).string();
    config.overwrite = true;
    return config;
  }

  static std::vector<nlohmann::json> Metrics(const std::string& path) {
    std::vector<nlohmann::json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  // The whole run, eager and captured: every loss and gradient norm, and the state at the end.
  void ExpectEagerAndCapturedAgree(Config config) {
    config.compile.mode = CompileMode::kEager;
    config.dump_folder += "_eager";
    TrainSummary eager = Train(config);
    config.compile.mode = CompileMode::kAotFxTrace;
    config.dump_folder += "_captured";
    TrainSummary captured = Train(config);
    EXPECT_EQ(eager.state_hash, captured.state_hash);
    auto a = Metrics(eager.metrics_path), b = Metrics(captured.metrics_path);
    ASSERT_EQ(a.size(), static_cast<size_t>(config.training.steps));
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i]["loss"].get<double>(), b[i]["loss"].get<double>()) << "step " << i + 1;
      EXPECT_EQ(a[i]["grad_norm"].get<double>(), b[i]["grad_norm"].get<double>())
          << "step " << i + 1;
    }
    EXPECT_LT(captured.last_loss, captured.first_loss);
  }

  static std::string MessageOf(const std::function<void()>& body, ErrorCode code) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(CodeName(error.code()), CodeName(code)) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

  fs::path folder_;
};

TEST_F(TrainerTest, EagerAndCapturedRunsAreEqual) {
  for (ComputeDtype dtype : {ComputeDtype::kFloat32, ComputeDtype::kBfloat16}) {
    Config config = Job(std::string(EnumName(dtype)));
    config.training.mixed_precision_param = dtype;
    config.training.steps = 12;
    config.optimizer.lr = 1e-2;
    ExpectEagerAndCapturedAgree(config);
  }
}

// Every family, both kinds of attention, both masks: losses, gradient norms, parameters and buffers.
TEST_F(TrainerTest, AllFamiliesAgreeOverTwentySteps) {
  for (auto [model, flavor] : {std::pair{"llama3", "tiny"}, std::pair{"qwen3", "tiny"},
                               std::pair{"qwen3", "tiny_moe"}, std::pair{"deepseek_v3", "tiny"}}) {
    for (auto [attention, mask] :
         {std::pair{AttentionBackend::kSdpa, AttentionMask::kCausal},
          std::pair{AttentionBackend::kFlex, AttentionMask::kCausal},
          std::pair{AttentionBackend::kFlex, AttentionMask::kBlockCausal}}) {
      std::string name =
          fmt::format("{}_{}_{}_{}", model, flavor, EnumName(attention), EnumName(mask));
      SCOPED_TRACE(name);
      Config config = Job(name, flavor);
      config.model.name = model;
      config.model.tokenizer_path = "bytes";
      config.model.attn = attention;
      config.model.attn_mask_type = mask;
      config.model.load_balance_coeff = 1e-3;
      config.training.steps = 20;
      config.training.local_batch_size = 2;
      config.training.z_loss_coeff = mask == AttentionMask::kCausal ? 0.0 : 1e-4;
      config.training.global_batch_size = mask == AttentionMask::kCausal ? 0 : 4;
      config.optimizer.lr = 5e-3;
      ExpectEagerAndCapturedAgree(config);
    }
  }
}

TEST_F(TrainerTest, DebugModelRunsOfTwentyStepsAreEqual_slow) {
  for (auto [model, flavor] :
       {std::pair{"llama3", "debugmodel"}, std::pair{"qwen3", "debugmodel"},
        std::pair{"qwen3", "debugmodel_moe"}, std::pair{"deepseek_v3", "debugmodel"}}) {
    for (AttentionBackend attention : {AttentionBackend::kSdpa, AttentionBackend::kFlex}) {
      std::string name = fmt::format("debug_{}_{}_{}", model, flavor, EnumName(attention));
      SCOPED_TRACE(name);
      Config config = Job(name, flavor);
      config.model.name = model;
      config.model.attn = attention;
      config.training.steps = 20;
      config.training.local_batch_size = 2;
      config.training.seq_len = 64;
      config.threads = 0;
      if (attention == AttentionBackend::kSdpa) {
        config.training.mixed_precision_param = ComputeDtype::kBfloat16;
      }
      ExpectEagerAndCapturedAgree(config);
    }
  }
}

TEST_F(TrainerTest, SameSeedSameRunOtherSeedOtherRun) {
  Config config = Job("a");
  uint64_t first = Train(config).state_hash;
  EXPECT_EQ(first, Train(config).state_hash);
  config.training.seed = 43;
  EXPECT_NE(first, Train(config).state_hash);
}

TEST_F(TrainerTest, NonFiniteLossStopsTheRunAndKeepsItsMetrics) {
  Config config = Job("diverges");
  config.optimizer.lr = 1e30;
  config.training.max_norm = 0;
  config.lr_scheduler.warmup_steps = 0;
  std::string message = MessageOf([&] { Train(config); }, ErrorCode::kNonFiniteLoss);
  EXPECT_NE(message.find("--optimizer.lr"), std::string::npos) << message;
  std::ifstream file(config.dump_folder + "/metrics.jsonl");
  std::string first;
  EXPECT_TRUE(std::getline(file, first)) << "the steps before it are gone";
}

TEST_F(TrainerTest, BadDataAndFoldersAreNamed) {
  Config config = Job("bad");
  config.training.dataset_path = {(folder_ / "missing.txt").string()};
  EXPECT_NE(MessageOf([&] { Train(config); }, ErrorCode::kDataUnreadable).find("missing.txt"),
            std::string::npos);
  std::ofstream(folder_ / "empty.txt") << "";
  config.training.dataset_path = {(folder_ / "empty.txt").string()};
  EXPECT_NE(MessageOf([&] { Train(config); }, ErrorCode::kDataUnreadable).find("empty.txt"),
            std::string::npos);
  config.training.dataset_path = {};
  config.training.dataset = "sampel";
  EXPECT_NE(MessageOf([&] { Train(config); }, ErrorCode::kDataUnreadable).find("did you mean"),
            std::string::npos);
  config.training.dataset = "sample";
  config.model.flavor = "debugmodle";
  EXPECT_NE(MessageOf([&] { Train(config); }, ErrorCode::kUnknownModel).find("debugmodel"),
            std::string::npos);
  std::ofstream(folder_ / "file") << "";
  config.model.flavor = "tiny";
  config.dump_folder = (folder_ / "file" / "below").string();
  MessageOf([&] { Train(config); }, ErrorCode::kCannotWrite);
}

TEST_F(TrainerTest, AccumulatedGradientsAreThoseOfTheWholeBatch) {
  Config whole = Job("whole"), parts = Job("parts");
  whole.training.local_batch_size = 4;
  parts.training.local_batch_size = 1;
  parts.training.global_batch_size = 4;
  auto a = Metrics(Train(whole).metrics_path), b = Metrics(Train(parts).metrics_path);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 1e-4) << "step " << i + 1;
    EXPECT_EQ(a[i]["tokens"], b[i]["tokens"]);
  }
  parts.training.global_batch_size = 5;
  parts.training.local_batch_size = 2;
  MessageOf([&] { Train(parts); }, ErrorCode::kConflictingOptions);
}

TEST_F(TrainerTest, LossInPartsIsTheWholeLoss) {
  Config whole = Job("one_part"), parts = Job("five_parts");
  whole.training.loss_chunks = 1;
  parts.training.loss_chunks = 5;  // does not divide the sequence
  auto a = Metrics(Train(whole).metrics_path), b = Metrics(Train(parts).metrics_path);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 1e-4) << "step " << i + 1;
    EXPECT_NEAR(a[i]["grad_norm"].get<double>(), b[i]["grad_norm"].get<double>(), 1e-4);
  }
}

TEST_F(TrainerTest, ReportsValidationTensorBoardAndProfiles) {
  Config config = Job("reports");
  config.validation.enable = true;
  config.validation.dataset_path = {GT_SOURCE_DIR "/data/README.md"};
  config.validation.freq = 2;
  config.validation.steps = 2;
  config.metrics.enable_tensorboard = true;
  config.profiling.steps = "2-3";
  auto lines = Metrics(Train(config).metrics_path);
  EXPECT_FALSE(lines[0].contains("validation_loss"));
  EXPECT_TRUE(lines[1].contains("validation_loss"));
  EXPECT_TRUE(lines[4].contains("validation_loss")) << "after the last step";
  EXPECT_FALSE(fs::is_empty(config.dump_folder + "/tb"));
  for (CompileMode mode : {CompileMode::kAotFxTrace, CompileMode::kEager}) {
    config.compile.mode = mode;
    Train(config);
    std::ifstream file(config.dump_folder + "/profile/step_2.json");
    nlohmann::json trace = nlohmann::json::parse(file);
    bool forward = false, backward = false;
    for (const auto& event : trace.is_array() ? trace : trace["traceEvents"]) {
      if (!event.contains("args") || !event["args"].contains("module")) continue;
      bool mine = event["args"]["module"] == "layers.1.attention.wqkv";
      forward |= mine && event["args"]["phase"] == "forward";
      backward |= mine && event["args"]["phase"] == "backward";
    }
    EXPECT_TRUE(forward) << EnumName(mode);
    EXPECT_TRUE(backward) << EnumName(mode);
  }
  config.profiling.steps = "2-x";
  MessageOf([&] { Train(config); }, ErrorCode::kBadOptionValue);
}

TEST_F(TrainerTest, TokensOutsideTheVocabularyAreNamed) {
  Config config = Job("vocabulary");
  config.model.tokenizer_path =
      GT_SOURCE_DIR "/data/tokenizer";  // 2048 tokens for a model with 256
  MessageOf([&] { Train(config); }, ErrorCode::kTokenOutOfVocabulary);
}

TEST_F(TrainerTest, WritesTheResolvedConfig) {
  Config config = Job("resolved");
  Train(config);
  Config read;
  LoadTomlFile(config.dump_folder + "/config.toml", &read);
  config.training.mixed_precision_param = ComputeDtype::kFloat32;  // what auto means on a CPU
  config.overwrite = false;
  EXPECT_EQ(ToToml(read), ToToml(config));
}

TEST(LearningRate, WarmsUpStaysAndDecaysToZero) {
  LrSchedulerSection schedule;
  schedule.warmup_steps = 2;
  schedule.decay_ratio = 0.8;
  std::vector<double> factors;
  for (int64_t step = 0; step < 10; ++step)
    factors.push_back(LearningRateFactor(step, 10, schedule));
  EXPECT_EQ(factors[0], 0.5);
  EXPECT_EQ(factors[1], 1.0);
  EXPECT_EQ(factors[2], 1.0);
  EXPECT_DOUBLE_EQ(factors[3], 1.0 - 1.0 / 8);
  EXPECT_DOUBLE_EQ(factors[9], 1.0 - 7.0 / 8);
  for (size_t i = 3; i < 10; ++i) EXPECT_LT(factors[i], factors[i - 1]);
}

TEST(LearningRate, WarmUpLongerThanTheRunIsCut) {
  LrSchedulerSection schedule;
  schedule.warmup_steps = 100;
  EXPECT_EQ(LearningRateFactor(0, 4, schedule), 0.25);
  EXPECT_EQ(LearningRateFactor(3, 4, schedule), 1.0);
}

TEST(Gradients, AreGivenMemoryOfTheirOwn) {
  at::Tensor shared = at::ones({2, 3});
  std::vector<at::Tensor> parameters = {at::zeros({2, 3}), at::zeros({2, 3}), at::zeros({3, 2})};
  std::vector<at::Tensor> own = OwnGradients(parameters, {shared, shared, shared.t()});
  own[0].mul_(2);
  EXPECT_TRUE(own[1].equal(at::ones({2, 3})));
  EXPECT_EQ(own[2].strides(), parameters[2].strides());
}

TEST(Gradients, ClippingBringsTheGlobalNormDown) {
  std::vector<at::Tensor> gradients = {at::full({4}, 3.0), at::Tensor(), at::full({4}, 4.0)};
  double norm = GradientNorm(gradients);
  EXPECT_DOUBLE_EQ(norm, 10.0);
  EXPECT_EQ(ClippingFor(norm, 0).factor, 1.0);
  EXPECT_EQ(ClippingFor(norm, 11.0).factor, 1.0);
  EXPECT_NEAR(ClippingFor(norm, 1.0).factor, 0.1, 1e-6);
}

// Clipping inside the update is clipping before it.
TEST(Gradients, TheUpdateTakesTheFactorIntoAccount) {
  at::Tensor a = at::rand({64}), b = a.clone(), gradient = at::randn({64});
  AdamW first({{"a", a}}, {}), second({{"b", b}}, {});
  first.Step(std::vector<at::Tensor>{gradient.clone()}, 0.1, 0.25);
  second.Step(std::vector<at::Tensor>{gradient * 0.25}, 0.1);
  EXPECT_TRUE(a.equal(b));
  EXPECT_FALSE(a.equal(at::zeros_like(a)));
}

TEST(Gradients, NormsOfHalfPrecisionAreSummedWide) {
  std::vector<at::Tensor> gradients = {at::full({100'000}, 0.01, at::dtype(at::kBFloat16))};
  double each = gradients[0][0].item<double>();
  EXPECT_NEAR(GradientNorm(gradients), each * std::sqrt(1e5), 1e-3);
}

// Whoever has which part of a gradient, in whatever order in memory.
TEST(Gradients, NormsOfManyElementsAreExact) {
  at::manual_seed(3);
  const at::Tensor gradient = at::randn({3000, 1001});
  const double norm = gradient.to(at::kDouble).norm().item<double>();
  const auto error = [norm](const std::vector<at::Tensor>& gradients) {
    return std::abs(GradientNorm(gradients) - norm) / norm;
  };
  EXPECT_LT(error({gradient}), 1e-7);
  EXPECT_LT(error({gradient.t()}), 1e-7);
  EXPECT_LT(error(gradient.tensor_split(7)), 1e-7);
  EXPECT_LT(error(gradient.tensor_split(7, 1)), 1e-6);  // not dense: added up one by one
}

TEST(Metrics, ReadsWell) {
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(12), "12");
  EXPECT_EQ(ByteText(1536), "1.5 KiB");
  EXPECT_EQ(DurationText(3723), "1:02:03");
}

TEST(AdamWTest, FollowsTheFormula) {
  OptimizerSection config;
  config.weight_decay = 0.1;
  at::Tensor parameter = at::full({3}, 2.0, at::kDouble),
             gradient = at::full({3}, 0.5, at::kDouble);
  AdamW optimizer({{"p", parameter}}, config);
  double value = 2.0, mean = 0, square = 0;
  for (int step = 1; step <= 3; ++step) {
    optimizer.Step(std::vector<at::Tensor>{gradient}, 0.01);
    mean = config.beta1 * mean + (1 - config.beta1) * 0.5;
    square = config.beta2 * square + (1 - config.beta2) * 0.25;
    value -= 0.01 * config.weight_decay * value;
    value -= 0.01 * (mean / (1 - std::pow(config.beta1, step))) /
             (std::sqrt(square / (1 - std::pow(config.beta2, step))) + config.eps);
    EXPECT_NEAR(parameter[0].item<double>(), value, 1e-12);
  }
}

// What can be refused before anything is written leaves no folder behind.
TEST_F(TrainerTest, RefusedChunksLeaveNoFiles) {
  Config config = Job("refused");
  config.model.name = "deepseek_v3";
  EpOverlapSection& overlap = config.compile.ep_overlap;
  overlap.enabled = AutoSwitch::kTrue;
  for (ChunkStrategy strategy : {ChunkStrategy::kEager, ChunkStrategy::kGraph}) {
    overlap.strategy = strategy;
    overlap.chunk_dim = ChunkDim::kSeq;
    overlap.module_fqn = "layers.*";
    const std::string message = MessageOf([&] { Train(config); }, ErrorCode::kChunkAttention);
    EXPECT_NE(message.find("layers.*.moe"), std::string::npos) << message;
    overlap.chunk_dim = ChunkDim::kBatch;
    overlap.module_fqn = "layers.*.attention";
    MessageOf([&] { Train(config); }, ErrorCode::kNothingToChunk);
    EXPECT_FALSE(fs::exists(config.dump_folder));
  }
}

}  // namespace
}  // namespace gt::trainer_test
