// A run that is interrupted, at whatever instant, ends with the bits of one that never was.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/base/text.h"
#include "gt/job/config.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/trainer.h"

namespace gt::resume_test {
namespace {

namespace fs = std::filesystem;

class ResumeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("gt_resume_test_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Config Job(const std::string& name, const std::string& model = "llama3") {
    Config config;
    config.device = DeviceChoice::kCpu;
    config.model.name = model;
    config.model.flavor = "tiny";
    config.model.tokenizer_path = "bytes";
    config.training.steps = 20;
    config.training.local_batch_size = 2;
    config.training.seq_len = 32;
    config.training.deterministic = true;
    config.threads = 1;
    config.checkpoint.enable = true;
    config.checkpoint.last_save_in_hf = false;
    config.dump_folder = (folder_ / name).string();
    config.overwrite = true;
    return config;
  }

  static std::vector<double> Losses(const std::string& dump_folder) {
    std::vector<double> losses;
    std::ifstream file(dump_folder + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      auto entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!entry.is_object()) continue;  // a line that is being written
      bool finite = entry["loss"].is_number();
      losses.push_back(finite ? entry["loss"].get<double>() : std::nan(""));
    }
    return losses;
  }

  // The program itself in a process of its own.
  static pid_t Start(const Config& config, const char* errors = "/dev/null") {
    std::string path = config.dump_folder + ".toml";
    std::ofstream(path) << ToToml(config);
    pid_t child = fork();
    if (child == 0) {
      // The tests may run under nohup, or in the background of a shell.
      for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) std::signal(signal, SIG_DFL);
      int nothing = open("/dev/null", O_WRONLY);
      dup2(nothing, 1);
      dup2(open(errors, O_WRONLY | O_CREAT, 0600), 2);
      execl(GT_BINARY, "gt", "train", "--config", path.c_str(), nullptr);
      _exit(127);
    }
    return child;
  }

  static int StatusOf(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }

  fs::path folder_;
};

TEST_F(ResumeTest, TenAndTenStepsAreTwenty) {
  for (const char* model : {"llama3", "deepseek_v3"}) {
    for (CompileMode mode : {CompileMode::kEager, CompileMode::kAotFxTrace}) {
      SCOPED_TRACE(std::string(model) + " " + std::string(EnumName(mode)));
      std::string name = std::string(model) + "_" + std::string(EnumName(mode));
      Config whole = Job(name + "_whole", model);
      whole.compile.mode = mode;
      whole.lr_scheduler.decay_type = DecayType::kNone;  // the schedule knows the number of steps
      TrainSummary expected = Train(whole);
      Config halves = whole;
      halves.dump_folder = (folder_ / (name + "_halves")).string();
      halves.training.steps = 10;
      Train(halves);
      halves.training.steps = 20;
      TrainSummary resumed = Train(halves);
      EXPECT_EQ(resumed.state_hash, expected.state_hash);
      EXPECT_EQ(Losses(halves.dump_folder), Losses(whole.dump_folder));
    }
  }
}

TEST_F(ResumeTest, AFinishedRunIsNotRunAgain) {
  Config config = Job("finished");
  config.training.steps = 3;
  TrainSummary first = Train(config), second = Train(config);
  EXPECT_EQ(first.state_hash, second.state_hash);
  EXPECT_EQ(second.steps, 3);
  EXPECT_EQ(Losses(config.dump_folder).size(), 3u);
}

TEST_F(ResumeTest, CheckpointsOfOtherModelsAreRefused) {
  Config config = Job("other");
  config.training.steps = 2;
  Train(config);
  auto refusal = [&](const Config& changed) {
    try {
      Train(changed);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCheckpointMismatch) << error.what();
      return std::string(error.what());
    }
    ADD_FAILURE() << "no error";
    return std::string();
  };
  Config other = config;
  other.training.steps = 4;
  other.model.name = "qwen3";
  EXPECT_NE(refusal(other).find("qwen3"), std::string::npos);
  other = config;
  other.training.steps = 4;
  other.training.seed = 7;  // other data
  refusal(other);
  other = config;
  other.training.steps = 4;
  other.model.n_layers = 1;
  refusal(other);
}

// Resolved, not spelled alike: the flavor's own numbers may be given, and a folder in any form.
TEST_F(ResumeTest, TheSameModelAskedForInAnotherWayIsContinued) {
  Config config = Job("same");
  config.training.steps = 1;
  config.checkpoint.last_save_in_hf = true;
  Train(config);
  config.training.steps = 2;
  config.model.n_layers = 2;
  config.model.vocab_size = 256;
  EXPECT_EQ(Train(config).steps, 2);
  config.training.steps = 3;
  config.model.n_layers = config.model.vocab_size = 0;
  config.model.hf_path = config.dump_folder + "/hf";
  config.checkpoint.last_save_in_hf = false;  // a run does not write over what it reads
  EXPECT_EQ(Train(config).steps, 3);
  config.training.steps = 4;
  config.model.hf_path += "/";
  EXPECT_EQ(Train(config).steps, 4);
}

TEST_F(ResumeTest, WhatChangesTheCourseOfTrainingIsStated) {
  Config config = Job("changed");
  config.training.steps = 1;
  Train(config);
  config.training.steps = 2;
  config.training.global_batch_size = 4;
  config.training.mixed_precision_param = ComputeDtype::kBfloat16;
  config.model.dropout = 0.1;
  config.optimizer.beta1 = 0.8;
  config.compile.memory_policy = MemoryPolicy::kDefault;  // changes no number
  ::testing::internal::CaptureStdout();
  Train(config);
  const std::string text = ::testing::internal::GetCapturedStdout();
  for (const char* change :
       {"training.steps 1 -> 2", "training.global_batch_size 2 -> 4", "model.dropout 0.0 -> 0.1",
        "training.mixed_precision_param \"float32\" -> \"bfloat16\"",
        "optimizer.beta1 0.9 -> 0.8"}) {
    EXPECT_NE(text.find(std::string("changed since then: ") + change), std::string::npos)
        << change << "\n"
        << text;
  }
  EXPECT_EQ(text.find("memory_policy"), std::string::npos) << text;
}

TEST_F(ResumeTest, ASignalSavesAndLeaves) {
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    Config config = Job("signal_" + std::to_string(signal));
    config.training.steps = 100'000;
    pid_t child = Start(config);
    for (int i = 0; i < 3000 && Losses(config.dump_folder).size() < 3; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    kill(child, signal);
    int status = StatusOf(child);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    size_t done = Losses(config.dump_folder).size();
    config.training.steps = static_cast<int64_t>(done);
    EXPECT_EQ(Train(config).steps, static_cast<int64_t>(done));
  }
}

// The validation after the second step would take for ever.
TEST_F(ResumeTest, ASignalEndsAValidation) {
  for (int64_t ranks : {1, 3}) {
    SCOPED_TRACE(ranks);
    Config config = Job(fmt::format("validates_{}", ranks));
    config.ranks = ranks;
    config.training.steps = 100'000;
    config.validation.split = 0.2;
    config.validation.freq = 2;
    config.validation.steps = 1'000'000'000;
    const pid_t child = Start(config);
    for (int i = 0; i < 3000 && Losses(config.dump_folder).empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    kill(child, SIGTERM);
    const int status = StatusOf(child);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
    // Steps are saved, without a loss that is not that of all batches.
    const size_t done = Losses(config.dump_folder).size();
    EXPECT_LE(done, 2u);
    EXPECT_EQ(testing::ReadText(config.dump_folder + "/metrics.jsonl").find("validation_loss"),
              std::string::npos);
    config.training.steps = static_cast<int64_t>(done) + 1;
    config.validation.steps = 1;
    EXPECT_EQ(Train(config).steps, config.training.steps);
    EXPECT_EQ(Losses(config.dump_folder).size(), done + 1);
  }
}

// The answer comes at once and is true: no further step runs, also with several ranks.
TEST_F(ResumeTest, ASignalEndsTheStepUnderWay) {
  for (int64_t ranks : {1, 3}) {
    Config config = Job(fmt::format("answers_{}", ranks));
    config.ranks = ranks;
    config.training.steps = 100'000;
    config.training.seq_len = 512;  // steps that take a while
    const std::string errors = config.dump_folder + ".err";
    pid_t child = Start(config, errors.c_str());
    for (int i = 0; i < 3000 && Losses(config.dump_folder).size() < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const size_t before = Losses(config.dump_folder).size();
    kill(child, SIGINT);
    EXPECT_EQ(WEXITSTATUS(StatusOf(child)), 128 + SIGINT);
    std::ifstream file(errors);
    const std::string said{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const size_t done = Losses(config.dump_folder).size();
    EXPECT_LE(done, before + 1);
    EXPECT_NE(said.find("saving; press again to stop now"), std::string::npos) << said;
    // A signal between two steps finishes none.
    if (said.find("finishing") == std::string::npos) continue;
    EXPECT_NE(said.find(fmt::format("finishing step {}, then saving", done)), std::string::npos)
        << done << " steps\n"
        << said;
  }
}

// A crash may cut a line of metrics.jsonl short. Lines before and after it stay.
TEST_F(ResumeTest, ATornLineOfMetricsCostsNoOtherLine) {
  Config config = Job("torn");
  config.training.steps = 4;
  Train(config);
  const std::string path = config.dump_folder + "/metrics.jsonl";
  std::vector<std::string> lines = Split(ReadWholeFile(path), '\n');
  ASSERT_EQ(lines.size(), 5U);  // the last one is empty
  lines[1].resize(lines[1].size() / 2);
  lines[2] = R"({"step": "3", "loss": 1})";
  lines.insert(lines.begin() + 3, "[1, 2]");
  std::ofstream(path) << Join(lines, "\n");
  config.training.steps = 6;
  Train(config);
  std::vector<int64_t> steps;
  for (const std::string& line : Split(ReadWholeFile(path), '\n')) {
    if (!line.empty()) steps.push_back(nlohmann::json::parse(line).at("step").get<int64_t>());
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 4, 5, 6}));
}

TEST_F(ResumeTest, FewerStepsThanAreDoneAreRefused) {
  Config config = Job("shorter");
  config.training.steps = 4;
  Train(config);
  config.training.steps = 3;
  try {
    Train(config);
    FAIL() << "the run exported weights of a later step";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConflictingOptions);
    EXPECT_NE(std::string(error.what()).find("--training.steps 3"), std::string::npos);
  }
}

TEST_F(ResumeTest, ANonFiniteStepCanBeRunAgain) {
  Config config = Job("diverges");
  config.optimizer.lr = 1e30;
  config.training.max_norm = 0;
  config.lr_scheduler.warmup_steps = 0;
  EXPECT_THROW(Train(config), Error);
  auto before = Losses(config.dump_folder);
  Config again = config;
  again.checkpoint.folder = config.dump_folder + "/nonfinite";
  again.dump_folder = (folder_ / "again").string();
  try {
    Train(again);
    FAIL() << "the step was fine the second time";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNonFiniteLoss);
  }
  EXPECT_EQ(Losses(again.dump_folder).size(), 1u);
}

TEST_F(ResumeTest, UnwritableFoldersAreNoticedBeforeTraining) {
  Config config = Job("unwritable");
  std::ofstream(folder_ / "file") << "";
  config.checkpoint.folder = (folder_ / "file" / "below").string();
  try {
    Train(config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCannotWrite);
  }
  EXPECT_TRUE(Losses(config.dump_folder).empty());
}

// SIGKILL at random instants, also while checkpoints are being written: a save is under way most of
// the time here.
TEST_F(ResumeTest, KilledThirtyTimesItEndsWithTheSameBits) {
  Config calm = Job("calm", "deepseek_v3");
  calm.training.steps = 60;
  calm.checkpoint.interval = 1;
  TrainSummary expected = Train(calm);
  Config killed = calm;
  killed.dump_folder = (folder_ / "killed").string();
  std::mt19937 random(12345);
  int kills = 0;
  // Once the run would finish, the wait is shortened: all thirty kills must hit a running process.
  double longest = 1.0;
  while (kills < 30) {
    pid_t child = Start(killed);
    double seconds = 0.05 + longest * (random() % 1000) / 1000.0;
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    kill(child, SIGKILL);
    int status = StatusOf(child);
    if (WIFSIGNALED(status)) {
      ++kills;
    } else {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      longest /= 2;
      fs::remove_all(killed.dump_folder);
    }
  }
  TrainSummary last = Train(killed);
  EXPECT_EQ(last.state_hash, expected.state_hash);
  EXPECT_EQ(Losses(killed.dump_folder), Losses(calm.dump_folder));
}

}  // namespace
}  // namespace gt::resume_test
