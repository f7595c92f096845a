#include "gt/train/model_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "gt/base/error.h"
#include "gt/compile/configured_model.h"
#include "gt/generate/generate.h"
#include "gt/job/config.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/checkpoint.h"
#include "gt/train/trainer.h"

namespace gt::model_source_test {
namespace {

using testing::ExpectError;

const std::string kParity = GT_SOURCE_DIR "/tests/parity/";
const std::vector<int32_t> kAnd = {'A', 'n', 'd'};

ModelPtr Load(const ModelSource& source, int64_t new_tokens = 8) {
  return LoadForGeneration(source, std::vector<std::vector<int32_t>>{kAnd}, new_tokens, at::kCPU);
}

at::Tensor WeightsOf(const ModelSource& source) { return Load(source)->HeadWeight(); }

std::vector<int32_t> GreedyOf(const ModelSource& source) {
  std::vector<TextRequest> requests = {{kAnd, Sampler({.temperature = 0.0}, 1)}};
  return Generate(*Load(source), requests, {.max_new_tokens = 8})[0];
}

class ModelSourceTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("GT_HOME", GT_SOURCE_DIR, 1); }

  // Two steps of a small model with tokens that are bytes.
  Config Job(const std::string& name) const {
    Config config;
    config.device = DeviceChoice::kCpu;
    config.model.flavor = "tiny";
    config.model.tokenizer_path = "bytes";
    config.training.steps = 2;
    config.training.local_batch_size = 1;
    config.training.seq_len = 16;
    config.checkpoint.interval = 1;
    config.compile.mode = CompileMode::kEager;
    config.dump_folder = (folder_ / name).string();
    config.overwrite = true;
    return config;
  }

  static std::string Run(const Config& config) {
    ::testing::internal::CaptureStdout();
    Train(config);
    ::testing::internal::GetCapturedStdout();
    return config.dump_folder;
  }
  std::string RunWithCheckpoints(const std::string& name) const {
    Config config = Job(name);
    config.checkpoint.enable = true;
    return Run(config);
  }

  testing::TempFolder folder_;
};

// The dump folder, its checkpoints, one of them, and the exported weights are the same model.
TEST_F(ModelSourceTest, EveryFolderOfARunIsAModel) {
  std::string run = RunWithCheckpoints("kept");
  std::vector<int32_t> expected = GreedyOf(FindModel(run + "/hf/"));
  for (std::string folder : {run, run + "/checkpoint", run + "/checkpoint/step-00000002"}) {
    ModelSource source = FindModel(folder);
    EXPECT_TRUE(source.hf_folder.empty()) << folder;
    EXPECT_EQ(source.step, 2) << folder;
    EXPECT_EQ(GreedyOf(source), expected) << folder;
    EXPECT_EQ(CodecOf(source).tokenizer(), nullptr) << folder;
  }
  EXPECT_EQ(CodecOf(FindModel(run + "/hf")).tokenizer(), nullptr);
  // An older step has other weights.
  EXPECT_FALSE(WeightsOf(FindModel(run, 1)).equal(WeightsOf(FindModel(run))));
  EXPECT_TRUE(
      WeightsOf(FindModel(run + "/checkpoint/step-00000001")).equal(WeightsOf(FindModel(run, 1))));
  ExpectError(ErrorCode::kConflictingOptions, {"--step 1"}, [&] { FindModel(run + "/hf", 1); });
  ExpectError(ErrorCode::kConflictingOptions, {"--step 2"},
              [&] { FindModel(run + "/checkpoint/step-00000001", 2); });
  ExpectError(ErrorCode::kCheckpointDamaged, {"step 9", "1, 2"}, [&] { FindModel(run, 9); });
}

// A checkpoint says itself what it is of: it can be moved, and the config.toml beside it does not count.
TEST_F(ModelSourceTest, CheckpointsNeedNothingBesideThem) {
  std::string run = RunWithCheckpoints("moved");
  std::vector<int32_t> expected = GreedyOf(FindModel(run));
  std::filesystem::path elsewhere = folder_ / "elsewhere";
  std::filesystem::create_directory(elsewhere);
  std::filesystem::rename(run + "/checkpoint/step-00000002", elsewhere / "step-00000002");
  Config other = Job("moved");
  other.model.name = "qwen3";
  testing::WriteText(elsewhere / "config.toml", ToToml(other));
  EXPECT_EQ(GreedyOf(FindModel(elsewhere.string())), expected);
  EXPECT_EQ(GreedyOf(FindModel((elsewhere / "step-00000002").string())), expected);
  testing::WriteText(elsewhere / "step-00000002/state.json", "{}");
  ExpectError(ErrorCode::kCheckpointDamaged, {"state.json", "--step"},
              [&] { FindModel(elsewhere.string()); });
}

// However many ranks wrote a checkpoint, and however the model was spread over them.
TEST_F(ModelSourceTest, CheckpointsOfManyRanksAreOneModel) {
  Config config = Job("ranks");
  config.model.name = "deepseek_v3";
  config.training.local_batch_size = 2;
  config.ranks = 4;
  config.parallelism.tensor_parallel_degree = 2;
  config.parallelism.expert_parallel_degree = 2;
  config.checkpoint.enable = true;
  std::string run = Run(config);
  ModelSource source = FindModel(run);
  EXPECT_TRUE(source.hf_folder.empty());
  EXPECT_TRUE(WeightsOf(source).equal(WeightsOf(FindModel(run + "/hf"))));
  EXPECT_EQ(GreedyOf(source), GreedyOf(FindModel(run + "/hf")));
}

TEST_F(ModelSourceTest, RunWithoutCheckpointsGivesItsExport) {
  std::string run = Run(Job("exported"));
  EXPECT_EQ(std::filesystem::path(FindModel(run).hf_folder).filename(), "hf");
  ExpectError(ErrorCode::kUnknownModel, {"--checkpoint.enable"}, [&] { FindModel(run, 2); });
  std::filesystem::remove_all(run + "/hf");
  ExpectError(ErrorCode::kUnknownModel, {"exported no weights"}, [&] { FindModel(run); });
}

// The checkpoints of an earlier run in the same folder are not what the later one trained.
TEST_F(ModelSourceTest, DumpFolderIsItsLatestRun) {
  std::string run = RunWithCheckpoints("twice");
  Config later = Job("twice");
  later.training.seed = 7;
  Run(later);
  EXPECT_FALSE(FindModel(run).hf_folder.empty());
  EXPECT_TRUE(FindModel(run, 2).hf_folder.empty());
  EXPECT_FALSE(WeightsOf(FindModel(run)).equal(WeightsOf(FindModel(run + "/checkpoint"))));
}

// Weights of a run in bfloat16 are read as they are and computed with in float32.
TEST_F(ModelSourceTest, WeightsBecomeFloat32OnTheCpu) {
  Config config;
  config.model.flavor = "tiny";
  config.training.dtype = TrainingDtype::kBfloat16;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  ModelPtr model = BuildConfiguredModel(config);
  InitializeModel(*model, config, at::kCPU);
  AdamW optimizer(NamedTensors(), config.optimizer);
  World::Run(config, [&](World& world) {
    Progress progress;
    progress.step = 3;
    Checkpointer(config, *model, optimizer, at::kCPU, world, JobShare(Mesh(), 1))
        .SaveTo((folder_ / "half").string(), progress);
  });
  ModelPtr loaded = Load(FindModel((folder_ / "half").string()));
  EXPECT_EQ(loaded->HeadWeight().scalar_type(), at::kFloat);
  EXPECT_TRUE(loaded->HeadWeight().equal(model->HeadWeight().to(at::kFloat)));
  EXPECT_FALSE(loaded->is_training());
}

TEST_F(ModelSourceTest, MistakesAreExplained) {
  ExpectError(ErrorCode::kUnknownModel, {"no folder '/does/not/exist'", "--model"},
              [] { FindModel("/does/not/exist"); });
  ExpectError(ErrorCode::kUnknownModel, {"config.json", "config.toml", "step-N"},
              [&] { FindModel(folder_.path().string()); });
  ExpectError(ErrorCode::kUnknownModel, {"there is a file, but no folder"},
              [] { FindModel(kParity + "llama/config.json"); });
  ModelSource source = FindModel(kParity + "llama");
  ExpectError(ErrorCode::kBadTokenizer, {"llama", "--tokenizer"}, [&] { CodecOf(source); });
  EXPECT_EQ(CodecOf(source, "bytes").tokenizer(), nullptr);
  ExpectError(ErrorCode::kBadPrompt, {"3 tokens", "257", "256"}, [&] { Load(source, 254); });
  EXPECT_NE(Load(source, 253), nullptr);
  const std::vector<std::vector<int32_t>> outside = {{1}, {1, 512}};
  ExpectError(ErrorCode::kTokenOutOfVocabulary, {"token 1 of the prompt is 512", "512 tokens"},
              [&] { LoadForGeneration(source, outside, 8, at::kCPU); });
}

// The architecture of such a run is in a folder that may be named relative to where the run began.
TEST_F(ModelSourceTest, MissingFolderOfTheArchitectureIsNamed) {
  ModelSource source;
  source.checkpoints = "outputs/checkpoint";
  source.step = 2;
  source.config.model.hf_path = "gone/llama";
  ExpectError(ErrorCode::kUnknownModel, {"step 2 of outputs/checkpoint", "gone/llama"},
              [&] { Load(source); });
}

}  // namespace
}  // namespace gt::model_source_test
