// Memory policies on whole train steps: no bit changes, the predicted peak is the measured one, and what
// does not fit ends with an error that helps.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "gt/base/error.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_capacity.h"
#include "gt/exec/host_pool.h"
#include "gt/exec/transfer.h"
#include "gt/job/config.h"
#include "gt/torch_bridge/cpu_memory.h"
#include "gt/torch_bridge/device.h"
#include "gt/torch_bridge/generator.h"
#include "gt/torch_bridge/one_thread_test_util.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/eager_step.h"
#include "gt/train/step/step.h"
#include "gt/train/step/step_test_util.h"
#include "gt/train/trainer.h"

namespace gt::memory_test {
namespace {

namespace fs = std::filesystem;

constexpr MemoryPolicy kPolicies[] = {MemoryPolicy::kNone, MemoryPolicy::kDefault,
                                      MemoryPolicy::kEager, MemoryPolicy::kFull,
                                      MemoryPolicy::kSacAndOffload};

Config JobOf(const std::string& model, const std::string& flavor, int64_t rows, int64_t length) {
  Config config;
  config.device = DeviceChoice::kCpu;
  config.model.name = model;
  config.model.flavor = flavor;
  config.training.local_batch_size = rows;
  config.training.seq_len = length;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  return config;
}

std::unique_ptr<TrainStep> StepOf(LanguageModel& model, const Config& config) {
  if (config.compile.mode == CompileMode::kEager) {
    return MakeEagerStep(model, LossConfigOf(config, model));
  }
  return MakeCapturedStep(model, Compile({.model = model, .config = config, .device = at::kCPU}));
}

struct Case {
  const char *model, *flavor;
  AttentionBackend attention;
  double dropout;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << fmt::format("{}_{}_{}_dropout_{}", c.model, c.flavor, EnumName(c.attention),
                            c.dropout > 0 ? "on" : "off");
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (auto [model, flavor] :
       {std::pair{"llama3", "debugmodel"}, std::pair{"qwen3", "debugmodel"},
        std::pair{"qwen3", "debugmodel_moe"}, std::pair{"deepseek_v3", "debugmodel"}}) {
    for (AttentionBackend attention : {AttentionBackend::kSdpa, AttentionBackend::kFlex}) {
      for (double dropout : {0.0, 0.1}) cases.push_back({model, flavor, attention, dropout});
    }
  }
  return cases;
}

class MemoryPolicies : public ::testing::TestWithParam<Case> {};

// Loss, gradients and buffers of two steps, for eager and all policies.
TEST_P(MemoryPolicies, GiveTheSameBits) {
  Config config = JobOf(GetParam().model, GetParam().flavor, 2, 48);
  config.model.attn = GetParam().attention;
  config.model.n_layers = 3;
  config.model.dropout = GetParam().dropout;
  GeneratorScope generator;
  ModelPtr model = BuildConfiguredModel(config);
  InitializeModel(*model, config, at::kCPU);
  Batch batch = RandomBatch(config, model->vocab_size());
  std::vector<at::Tensor> buffers = model->buffers(), first, after;
  for (const at::Tensor& buffer : buffers) first.push_back(buffer.clone());
  auto two_steps = [&](const Config& settings) {
    at::NoGradGuard no_gradients;
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(first[i]);
    std::unique_ptr<TrainStep> step = StepOf(*model, settings);
    SeedGenerator(at::kCPU, 11);
    at::AutoGradMode gradients(true);
    step->Run(batch, batch.valid_tokens);  // the second draws what the first has left
    return step->Run(batch, batch.valid_tokens);
  };
  config.compile.mode = CompileMode::kEager;
  StepResult expected = two_steps(config);
  for (const at::Tensor& buffer : buffers) after.push_back(buffer.clone());
  config.compile.mode = CompileMode::kAotFxTrace;
  for (MemoryPolicy policy : kPolicies) {
    SCOPED_TRACE(std::string(EnumName(policy)));
    config.compile.memory_policy = policy;
    ExpectSameBits(expected, two_steps(config), *model);
    for (size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(SameBits(buffers[i], after[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(DebugModels, MemoryPolicies, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return fmt::format("{}", info.index); });

// Dropout does drop: with it the loss differs, and differs between draws.
TEST(Dropout, DrawsFromTheSeededGenerator) {
  Config config = JobOf("llama3", "tiny", 2, 16);
  config.model.dropout = 0.2;
  GeneratorScope generator;
  ModelPtr model = BuildConfiguredModel(config);
  InitializeModel(*model, config, at::kCPU);
  Batch batch = RandomBatch(config, model->vocab_size());
  std::unique_ptr<TrainStep> step = StepOf(*model, config);
  auto loss = [&](uint64_t seed) {
    SeedGenerator(at::kCPU, seed);
    return step->Run(batch, batch.valid_tokens).loss.item<double>();
  };
  double first = loss(1);
  EXPECT_NE(loss(2), first);
  EXPECT_EQ(loss(1), first);
  model->eval();
  std::unique_ptr<TrainStep> without = StepOf(*model, config);
  double kept = without->Run(batch, batch.valid_tokens).loss.item<double>();
  EXPECT_EQ(without->Run(batch, batch.valid_tokens).loss.item<double>(), kept);
}

struct Peaks {
  int64_t measured = 0, predicted = 0;
};

Peaks PeaksOf(const Config& config, LanguageModel& model) {
  Batch batch = RandomBatch(config, model.vocab_size());
  Peaks peaks;
  std::unique_ptr<TrainStep> step;
  MemoryOptions memory = StepMemory(config, Mesh());
  memory.optimizer_bytes_per_element = 0;  // there is no optimizer here
  if (config.compile.mode == CompileMode::kEager) {
    step = StepOf(model, config);
  } else {
    CompiledStep captured = Compile({.model = model, .config = config, .device = at::kCPU});
    peaks.predicted = MeasureMemory(*captured.graph, memory).peak;
    step = MakeCapturedStep(model, std::move(captured));
  }
  step->Run(batch, batch.valid_tokens);
  ResetPeakMemory(at::kCPU);
  step->Run(batch, batch.valid_tokens);
  peaks.measured = MemoryOf(at::kCPU).peak;
  return peaks;
}

// Peaks of eager libtorch and of all policies. The optimizer is not there. One thread: libtorch's
// attention takes scratch memory for each.
std::map<std::string, Peaks> PeaksOfAll(Config config) {
  testing::OneThread one_thread;
  // Every expert gets as many tokens as the prediction assumes.
  config.debug.moe_force_load_balance = true;
  MeterScope meter;
  ModelPtr model = BuildConfiguredModel(config);
  InitializeModel(*model, config, at::kCPU);
  std::map<std::string, Peaks> peaks;
  config.compile.mode = CompileMode::kEager;
  peaks["libtorch"] = PeaksOf(config, *model);
  config.compile.mode = CompileMode::kAotFxTrace;
  for (MemoryPolicy policy : kPolicies) {
    config.compile.memory_policy = policy;
    Peaks& found = peaks[std::string(EnumName(policy))] = PeaksOf(config, *model);
    EXPECT_NEAR(static_cast<double>(found.predicted) / static_cast<double>(found.measured), 1.0,
                0.02)
        << EnumName(policy) << ": " << found.predicted << " against " << found.measured;
  }
  constexpr int64_t kFewBytes = 256;
  EXPECT_LE(peaks["none"].measured, peaks["libtorch"].measured + kFewBytes);
  return peaks;
}

TEST(MemoryPeak, IsPredictedAndOrdered) {
  std::map<std::string, Peaks> peaks = PeaksOfAll(JobOf("llama3", "debugmodel", 4, 512));
  EXPECT_LT(peaks["default"].measured, peaks["none"].measured);
  EXPECT_LT(peaks["eager"].measured, peaks["default"].measured);
  EXPECT_LT(peaks["full"].measured, peaks["eager"].measured);
  EXPECT_LT(peaks["sac_and_offload"].measured, peaks["default"].measured);
}

TEST(MemoryPeak, IsPredictedWithExperts) { PeaksOfAll(JobOf("deepseek_v3", "debugmodel", 2, 128)); }

// Scores of a block of queries and keys exist while it is computed; with many heads blocks are smaller.
TEST(MemoryPeak, IsPredictedWithFlexAttention) {
  for (const auto& [model, rows, length] :
       {std::tuple("llama3", 4, 600), std::tuple("deepseek_v3", 2, 300),
        std::tuple("qwen3", 80, 130)}) {
    SCOPED_TRACE(model);
    Config config = JobOf(model, "tiny", rows, length);
    config.model.attn = AttentionBackend::kFlex;
    PeaksOfAll(config);
  }
}

TEST(Offload, MovesWhatThePassSaysAndStaysWithinItsBudget) {
  Config config = JobOf("llama3", "debugmodel", 4, 256);
  config.compile.memory_policy = MemoryPolicy::kSacAndOffload;
  ModelPtr model = BuildConfiguredModel(config);
  InitializeModel(*model, config, at::kCPU);
  Batch batch = RandomBatch(config, model->vocab_size());
  auto moved = [&] {
    std::unique_ptr<TrainStep> step = StepOf(*model, config);
    TransferMeter meter(at::kCPU);
    step->Run(batch, batch.valid_tokens);
    return meter.stats();
  };
  TransferStats all = moved();
  EXPECT_GT(all.bytes_out, 0);
  EXPECT_EQ(all.bytes_out, all.bytes_back);
  config.compile.cpu_offload_budget_gb = static_cast<double>(all.bytes_out) / 2 / (1 << 30);
  TransferStats half = moved();
  EXPECT_GT(half.bytes_out, 0);
  EXPECT_LE(half.bytes_out, all.bytes_out / 2);
}

class MemoryFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("gt_memory_test_{}", getpid());
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Config Job(int64_t ranks = 1) const {
    Config config = JobOf("llama3", "tiny", 2, 32);
    config.model.tokenizer_path = "bytes";
    config.training.steps = 6;
    config.training.deterministic = true;
    config.threads = 1;
    config.ranks = ranks;
    config.checkpoint.last_save_in_hf = false;
    config.comm.train_timeout_seconds = 60;
    config.dump_folder = (folder_ / "run").string();
    config.overwrite = true;
    return config;
  }

  static Error FailureOf(const Config& config) {
    try {
      Train(config);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "training did not fail";
    return {ErrorCode::kInternal, ""};
  }

  fs::path folder_;
};

TEST_F(MemoryFaults, AJobThatDoesNotFitIsRefusedBeforeItBegins) {
  for (int64_t ranks : {1, 2}) {
    Config config = Job(ranks);
    config.training.local_batch_size = 8;
    config.training.memory_limit_gb = 1.0 / 1024;
    Error error = FailureOf(config);
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit) << error.what();
    for (const char* part : {"1.0 MiB", "parameters", "tensors alive then",
                             "--compile.memory_policy full", "--training.local_batch_size 4"}) {
      EXPECT_NE(error.message().find(part), std::string::npos) << part << "\n" << error.message();
    }
    EXPECT_FALSE(fs::exists(folder_ / "run" / "metrics.jsonl"));
  }
}

// What a whole run takes: with several ranks, whose sums need buffers, and while checkpoints are
// written from copies. The copies may be gone before the step reaches its peak, so that they are
// compared with what is written.
TEST_F(MemoryFaults, WhatARunTakesIsPredicted) {
  testing::OneThread one_thread;
  constexpr int64_t kCounters = 8192;  // of the optimizer, the generator and the data
  for (const int64_t ranks : {1, 4}) {
    SCOPED_TRACE(ranks);
    Config config = Job(ranks);
    config.model.flavor = "debugmodel";
    config.model.n_layers = 2;
    config.training.steps = 2;
    config.checkpoint.enable = true;
    config.checkpoint.interval = 1;
    config.checkpoint.async_mode = CheckpointAsync::kDisabled;
    const TrainSummary waiting = Train(config);
    EXPECT_GE(waiting.predicted_memory, waiting.peak_memory - kCounters);
    // Gloo's buffer for gathers, which is large beside a model this small, is on threads of its own.
    EXPECT_LE(static_cast<double>(waiting.predicted_memory),
              1.1 * static_cast<double>(waiting.peak_memory));
    int64_t written = 0;
    for (const auto& file : fs::directory_iterator(folder_ / "run/checkpoint/step-00000002")) {
      written += static_cast<int64_t>(file.file_size());
    }
    fs::remove_all(folder_);
    config.checkpoint.async_mode = CheckpointAsync::kAsync;
    const TrainSummary copying = Train(config);
    EXPECT_GE(copying.predicted_memory, copying.peak_memory - kCounters);
    const int64_t copies = copying.predicted_memory - waiting.predicted_memory;
    EXPECT_NEAR(static_cast<double>(copies * ranks) / static_cast<double>(written), 1.0, 0.05);
    fs::remove_all(folder_);
  }
}

TEST_F(MemoryFaults, MemoryThatRunsOutInTheMiddleOfAStepIsExplained) {
  Config config = Job();
  config.training.check_memory = false;
  config.training.memory_limit_gb = 0.75 / 1024;
  Error error = FailureOf(config);
  EXPECT_EQ(error.code(), ErrorCode::kDeviceMemoryExhausted) << error.what();
  for (const char* part :
       {"there was no memory for", "module '", "tensors alive then", "are in use"}) {
    EXPECT_NE(error.message().find(part), std::string::npos) << part << "\n" << error.message();
  }
}

// One rank of two runs out at step 4: both end, and the checkpoint of step 3 continues to the bits of a
// run in which nothing happened.
TEST_F(MemoryFaults, TheLastCheckpointOutlivesIt) {
  Config config = Job(2);
  TrainSummary straight = Train(config);
  fs::remove_all(folder_);
  config.checkpoint.enable = true;
  config.checkpoint.interval = 3;
  config.debug.fault = "memory:1:4";
  Error error = FailureOf(config);
  EXPECT_TRUE(error.code() == ErrorCode::kDeviceMemoryExhausted ||
              error.code() == ErrorCode::kRankFailed)
      << error.what();
  EXPECT_NE(error.message().find("there was no memory for"), std::string::npos) << error.what();
  config.debug.fault.clear();
  TrainSummary continued = Train(config);
  EXPECT_EQ(continued.steps, 6);
  EXPECT_EQ(continued.state_hash, straight.state_hash);
}

TEST_F(MemoryFaults, AHostWithoutRoomForActivationsIsNamed) {
  Config config = Job();
  config.model.flavor = "debugmodel";
  config.compile.memory_policy = MemoryPolicy::kSacAndOffload;
  HostPool::Instance().Trim();  // of what other tests have left there
  config.debug.host_memory_gb = 1.0 / 1024;
  Error error = FailureOf(config);
  EXPECT_EQ(error.code(), ErrorCode::kHostMemoryExhausted) << error.what();
  EXPECT_NE(error.message().find("--compile.cpu_offload_budget_gb"), std::string::npos);
}

// Draws do not depend on which rank's thread is first, nor on an interruption.
TEST_F(MemoryFaults, DropoutOnRanksThatAreThreadsIsReproducible) {
  Config config = Job(2);
  config.model.dropout = 0.1;
  TrainSummary straight = Train(config);
  EXPECT_EQ(Train(config).state_hash, straight.state_hash);
  config.compile.memory_policy = MemoryPolicy::kFull;
  EXPECT_EQ(Train(config).state_hash, straight.state_hash);
  config.compile.memory_policy = MemoryPolicy::kNone;
  config.compile.mode = CompileMode::kEager;
  EXPECT_EQ(Train(config).state_hash, straight.state_hash);
  config.checkpoint.enable = true;
  config.lr_scheduler.decay_type = DecayType::kNone;
  config.training.steps = 3;
  Train(config);
  config.training.steps = 6;
  uint64_t continued = Train(config).state_hash;
  config.checkpoint.enable = false;
  EXPECT_EQ(Train(config).state_hash, continued);
}

}  // namespace
}  // namespace gt::memory_test
