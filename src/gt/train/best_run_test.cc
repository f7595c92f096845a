// Runs that hold out a part of their data, and keep the checkpoint with the lowest validation loss.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "gt/base/error.h"
#include "gt/job/config.h"
#include "gt/storage/checkpoint_store.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/job_test_util.h"
#include "gt/train/model_source.h"
#include "gt/train/trainer.h"

namespace gt::best_run_test {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;
using testing::WriteText;

class BestRun : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    // What is learned soon hurts elsewhere: the validation loss falls and rises again.
    std::string text;
    for (int i = 0; i < 400; ++i) text += "In the beginning was a line of text. ";
    WriteText(folder_ / "train.txt", text);
  }

  Config Job(const std::string& name) const {
    Config config;
    config.device = DeviceChoice::kCpu;
    config.model.flavor = "tiny";
    config.model.tokenizer_path = "bytes";
    config.training.dataset_path = {(folder_ / "train.txt").string()};
    config.training.steps = 30;
    config.training.local_batch_size = 2;
    config.training.seq_len = 32;
    config.training.deterministic = true;
    config.threads = 1;
    config.lr_scheduler.decay_type = DecayType::kNone;  // the schedule knows the number of steps
    config.optimizer.lr = 0.02;
    config.validation.enable = true;
    config.validation.dataset_path = {GT_SOURCE_DIR "/data/README.md"};
    config.validation.freq = 3;
    config.validation.steps = 2;
    config.checkpoint.enable = true;
    config.checkpoint.keep_best = true;
    config.checkpoint.interval = 10;
    config.checkpoint.keep_latest_k = 1;
    config.checkpoint.last_save_in_hf = false;
    config.dump_folder = (folder_ / name).string();
    config.overwrite = true;
    return config;
  }

  static Config OnHeldOutText(Config config) {
    config.training.dataset_path = {};  // the sample
    config.validation.dataset_path = {};
    config.validation.split = 0.2;
    return config;
  }

  static CheckpointStore StoreOf(const Config& config) {
    return CheckpointStore(fs::path(config.dump_folder) / "checkpoint");
  }
  static std::optional<BestCheckpoint> BestOf(const Config& config) {
    return ReadBest(StoreOf(config).folder());
  }
  static std::vector<int64_t> StepsOf(const Config& config) {
    return StoreOf(config).CompleteSteps();
  }

  // The step with the lowest validation loss of those up to `last`, by the metrics.
  static BestCheckpoint LowestOf(const Config& config, int64_t last = 1'000'000) {
    BestCheckpoint lowest = {.step = 0, .validation_loss = 1e9};
    std::ifstream file(config.dump_folder + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json step = nlohmann::json::parse(line);
      if (!step.contains("validation_loss") || step["step"] > last) continue;
      if (step["validation_loss"] >= lowest.validation_loss) continue;
      lowest = {.step = step["step"], .validation_loss = step["validation_loss"]};
    }
    return lowest;
  }

  static void ExpectBest(const Config& config) {
    const std::optional<BestCheckpoint> best = BestOf(config);
    ASSERT_TRUE(best);
    EXPECT_EQ(best->step, LowestOf(config).step);
    EXPECT_EQ(best->validation_loss, LowestOf(config).validation_loss);
    EXPECT_NO_THROW(StoreOf(config).Open(best->step));
  }

  TempFolder folder_;
};

TEST_F(BestRun, TheLowestLossIsKeptBesideTheLatest) {
  for (const CheckpointAsync mode : {CheckpointAsync::kAsync, CheckpointAsync::kDisabled}) {
    Config config = Job("kept_" + std::string(EnumName(mode)));
    config.checkpoint.async_mode = mode;
    const TrainSummary summary = Train(config);
    ExpectBest(config);
    const int64_t best = BestOf(config)->step;
    ASSERT_LT(best, 30);      // or this test would show nothing
    ASSERT_NE(best % 10, 0);  // saved for nothing else
    EXPECT_EQ(StepsOf(config), (std::vector<int64_t>{best, 30}));
    // It changes nothing about the run.
    Config plain = Job("plain");
    plain.checkpoint.keep_best = false;
    EXPECT_EQ(Train(plain).state_hash, summary.state_hash);
    EXPECT_EQ(StepsOf(plain), std::vector<int64_t>{30});
    EXPECT_EQ(FindModel(config.dump_folder, kBestStep).step, best);
    EXPECT_EQ(FindModel(config.dump_folder + "/checkpoint", kBestStep).step, best);
    testing::ExpectError(ErrorCode::kUnknownModel, {"--step best", "--checkpoint.keep_best"},
                         [&] { FindModel(plain.dump_folder, kBestStep); });
  }
}

// Stopped anywhere and continued, the same checkpoints are there at the end.
TEST_F(BestRun, SurvivesResuming) {
  Config whole = Job("whole");
  const TrainSummary expected = Train(whole);
  Config halves = Job("halves");
  for (const int64_t steps : {8, 17, 23, 30}) {
    halves.training.steps = steps;
    halves.validation.freq = 3;
    Train(halves);
  }
  EXPECT_EQ(Train(halves).state_hash, expected.state_hash);
  // The halves also validate after their last steps.
  ExpectBest(halves);
  EXPECT_LE(BestOf(halves)->validation_loss, BestOf(whole)->validation_loss);
}

TEST_F(BestRun, WorksOnManyRanksAndWhenTheirNumberChanges) {
  Config config = OnHeldOutText(Job("ranks"));
  config.ranks = 2;
  config.parallelism.data_parallel_shard_degree = 2;
  config.training.steps = 12;
  Train(config);
  ExpectBest(config);
  const BestCheckpoint before = *BestOf(config);
  config.ranks = 0;
  config.parallelism.data_parallel_shard_degree = 1;
  config.training.steps = 20;
  Train(config);
  ExpectBest(config);
  EXPECT_LE(BestOf(config)->validation_loss, before.validation_loss);
}

// What was better after the step that is gone back to does not count any more.
TEST_F(BestRun, GoingBackGoesBackToTheBestOfThatTime) {
  Config config = OnHeldOutText(Job("back"));  // where more steps make it better
  config.checkpoint.keep_latest_k = 0;
  Train(config);
  const int64_t lowest = LowestOf(config).step;
  ASSERT_GT(lowest, 10);
  config.checkpoint.load_step = 10;
  config.training.steps = 11;
  config.validation.freq = 100;  // none but that after the last step
  Train(config);
  const BestCheckpoint best = *BestOf(config);
  EXPECT_LE(best.step, 11);
  EXPECT_EQ(best.step, LowestOf(config, 11).step);
  EXPECT_NO_THROW(StoreOf(config).Open(best.step));
}

// Losses on other data cannot be compared.
TEST_F(BestRun, OtherValidationDataBeginsAnew) {
  Config config = Job("other");
  Train(config);
  config.validation.dataset_path = {(folder_ / "train.txt").string()};
  config.validation.freq = 31;
  config.training.steps = 31;
  Train(config);
  EXPECT_EQ(BestOf(config)->step, 31);
  config.validation.dataset_path = {GT_SOURCE_DIR "/data/README.md"};
  config.training.steps = 62;
  Train(config);
  EXPECT_EQ(BestOf(config)->step, 62);  // worse than before, of course
}

class SplitRun : public BestRun {
 protected:
  Config Job(const std::string& name) const {
    Config config = OnHeldOutText(BestRun::Job(name));
    config.training.steps = 6;
    config.checkpoint.keep_best = false;
    config.checkpoint.interval = 100;
    config.validation.enable = false;
    config.validation.split = 0.1;
    return config;
  }
};

TEST_F(SplitRun, ValidatesWithoutBeingAsked) {
  Config config = Job("split");
  Train(config);
  EXPECT_EQ(LowestOf(config).step, 6);
}

TEST_F(SplitRun, ResumesExactly) {
  for (const int64_t ranks : {1, 2}) {
    Config whole = Job(fmt::format("whole_{}", ranks));
    whole.ranks = ranks;
    whole.parallelism.data_parallel_shard_degree = ranks;
    const TrainSummary expected = Train(whole);
    Config halves = whole;
    halves.dump_folder += "_halves";
    halves.training.steps = 3;
    Train(halves);
    halves.training.steps = 6;
    EXPECT_EQ(Train(halves).state_hash, expected.state_hash) << ranks;
  }
}

// Also where the number of ranks has changed, and places in the data with it.
TEST_F(SplitRun, AnotherSplitIsOtherData) {
  Config config = Job("refused");
  config.training.steps = 2;
  Train(config);
  config.training.steps = 4;
  const auto refused = [&](const Config& changed) {
    testing::ExpectError(ErrorCode::kCheckpointMismatch, {"--validation.split was 0.1 and is"},
                         [&] { Train(changed); });
  };
  Config changed = config;
  changed.validation.split = 0.2;
  refused(changed);
  changed.validation.split = 0;
  refused(changed);
  changed.ranks = 2;
  changed.parallelism.data_parallel_shard_degree = 2;
  refused(changed);
  changed.validation.split = 0.1;
  EXPECT_EQ(Train(changed).steps, 4);
}

TEST_F(SplitRun, NothingHeldOutIsAnErrorBeforeAnyStep) {
  Config config = Job("empty");
  config.validation.split = 1e-9;
  testing::ExpectError(ErrorCode::kDataUnreadable, {"holds out none of the 45 pieces", "raise it"},
                       [&] { Train(config); });
  EXPECT_FALSE(fs::exists(config.dump_folder + "/metrics.jsonl"));
}

TEST_F(SplitRun, ABadFieldIsAnErrorBeforeAnyStep) {
  Config config = Job("field");
  WriteText(folder_ / "a.jsonl", "{\"text\": \"x\"}\n");
  config.training.dataset_path = {(folder_ / "a.jsonl").string()};
  config.training.text_field = "body";
  testing::ExpectError(ErrorCode::kBadData, {"a.jsonl:1", "\"text\" (a string)"},
                       [&] { Train(config); });
  EXPECT_FALSE(fs::exists(config.dump_folder + "/metrics.jsonl"));
}

}  // namespace
}  // namespace gt::best_run_test
