// What a run finds in its folder: nothing of it is lost, and nothing that cannot be written is found
// only after the training.
#include "gt/train/run_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/job/config.h"
#include "gt/job/dump_folder.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/trainer.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

class RunFolderTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("GT_HOME", GT_SOURCE_DIR, 1); }

  Config Job(int64_t ranks = 1) const {
    Config config;
    config.device = DeviceChoice::kCpu;
    config.model.flavor = "tiny";
    config.model.tokenizer_path = "bytes";
    config.training.steps = 2;
    config.training.local_batch_size = 2;
    config.training.seq_len = 16;
    config.threads = 1;
    config.ranks = ranks;
    config.dump_folder = (folder_ / "run").string();
    config.training.mixed_precision_param = ComputeDtype::kFloat32;  // what auto means on a CPU
    return config;
  }

  fs::path InRun(const std::string& name) const { return folder_ / "run" / name; }

  static std::string TextOf(const fs::path& path) {
    if (!fs::is_regular_file(path)) return "";
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  // The error that ends the job before its first step.
  std::string Refusal(const Config& config, ErrorCode code) const {
    const std::string before = TextOf(InRun("metrics.jsonl"));
    std::string message;
    try {
      Train(config);
      ADD_FAILURE() << "the job was run";
    } catch (const Error& error) {
      EXPECT_EQ(CodeName(error.code()), CodeName(code)) << error.what();
      message = error.message();
    }
    EXPECT_EQ(TextOf(InRun("metrics.jsonl")), before);
    return message;
  }

  static void ExpectPart(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "expected '" << part << "' in: " << text;
  }

  testing::TempFolder folder_;
};

TEST_F(RunFolderTest, TwoRunsDoNotShareAFolder) {
  const Config config = Job();
  {
    const RunFolder other(config);
    for (const int64_t ranks : {1, 2}) {
      const std::string message = Refusal(Job(ranks), ErrorCode::kFolderInUse);
      ExpectPart(message, config.dump_folder);
      ExpectPart(message, fmt::format("process {} on ", getpid()));
    }
    // Another dump folder, but the same checkpoints.
    Config checkpoints = config;
    checkpoints.checkpoint.enable = true;
    checkpoints.checkpoint.folder = (folder_ / "shared").string();
    checkpoints.dump_folder = (folder_ / "second").string();
    const RunFolder second(checkpoints);
    checkpoints.dump_folder = (folder_ / "third").string();
    ExpectPart(Refusal(checkpoints, ErrorCode::kFolderInUse), "shared");
  }
  EXPECT_EQ(Train(config).steps, 2);
}

TEST_F(RunFolderTest, WhatCannotBeWrittenIsFoundBeforeTheFirstStep) {
  fs::create_directories(InRun("run.json"));
  ExpectPart(Refusal(Job(), ErrorCode::kCannotWrite), "run.json");
  fs::remove_all(folder_ / "run");
  // Results that cannot be moved.
  EXPECT_EQ(Train(Job()).steps, 2);
  std::ofstream(InRun("previous")) << "notes of mine";
  ExpectPart(Refusal(Job(), ErrorCode::kCannotWrite), "a part of the path is a file");
  EXPECT_EQ(TextOf(InRun("previous")), "notes of mine");
}

// A run that fails before its first step leaves everything as it was; one that goes on moves it.
TEST_F(RunFolderTest, ResultsMoveOnceTheNextRunHasSomeOfItsOwn) {
  const Config config = Job();
  Train(config);
  const std::string metrics = TextOf(InRun("metrics.jsonl")), toml = TextOf(InRun("config.toml"));
  const std::string weights = TextOf(InRun("hf/model.safetensors"));
  Config bad = config;
  bad.training.dataset_path = {(folder_ / "nowhere").string()};
  Refusal(bad, ErrorCode::kDataUnreadable);
  bad = config;
  bad.training.memory_limit_gb = 1e-5;  // refused once the step is captured
  bad.overwrite = true;
  Refusal(bad, ErrorCode::kDoesNotFit);
  EXPECT_EQ(TextOf(InRun("metrics.jsonl")), metrics);
  EXPECT_EQ(TextOf(InRun("config.toml")), toml);
  EXPECT_EQ(TextOf(InRun("hf/model.safetensors")), weights);
  EXPECT_FALSE(fs::exists(InRun("previous")));

  Train(config);
  EXPECT_EQ(TextOf(InRun("previous/metrics.jsonl")), metrics);
  EXPECT_EQ(TextOf(InRun("previous/hf/model.safetensors")), weights);
  EXPECT_EQ(TextOf(InRun("hf/model.safetensors")), weights);
  // One generation, and what somebody else keeps there.
  std::ofstream(InRun("previous/mine")) << "notes";
  Config other = config;
  other.training.seed = 1;
  other.overwrite = true;
  Train(other);
  EXPECT_EQ(TextOf(InRun("previous/config.toml")), toml);
  EXPECT_EQ(TextOf(InRun("previous/mine")), "notes");
  EXPECT_NE(TextOf(InRun("hf/model.safetensors")), weights);
}

TEST_F(RunFolderTest, ResultsOfAnotherConfigurationAreNotReplacedUnasked) {
  Config config = Job();
  Train(config);
  config.metrics.log_freq = 2;  // the same results
  EXPECT_EQ(Train(config).steps, 2);
  config.training.seed = 7;
  config.optimizer.lr = 1e-5;
  const std::string message = Refusal(config, ErrorCode::kFolderHasResults);
  ExpectPart(message, "training.seed 42 -> 7");
  ExpectPart(message, "optimizer.lr");
  ExpectPart(message, "--overwrite");
  config.overwrite = true;
  EXPECT_EQ(Train(config).steps, 2);
  Config read;
  LoadTomlFile(InRun("config.toml").string(), &read);
  EXPECT_FALSE(read.overwrite) << "the next run from this file is asked again";
}

// Files of these names that gt has not written are the user's, and are never removed.
TEST_F(RunFolderTest, FilesOfTheUserAreNeverReplaced) {
  fs::create_directories(InRun("hf"));
  std::ofstream(InRun("hf/model.safetensors")) << "mine";
  std::ofstream(InRun("config.toml")) << "# mine";
  Config config = Job();
  const std::string message = Refusal(config, ErrorCode::kFolderHasResults);
  ExpectPart(message, "config.toml, hf");
  config.overwrite = true;
  for (int run = 0; run < 3; ++run) Train(config);
  EXPECT_EQ(TextOf(InRun("previous/config.toml")), "# mine");
  EXPECT_EQ(TextOf(InRun("previous/hf/model.safetensors")), "mine");
}

// However an input is reached, and also with --overwrite: nothing that a run reads is moved or written.
TEST_F(RunFolderTest, InputsAreNeverOutputs) {
  fs::create_directories(InRun(""));
  std::string data;  // the user's lines, under a name that runs use, too
  for (int i = 0; i < 200; ++i) data += fmt::format("{{\"text\": \"line {} of mine\"}}\n", i);
  std::ofstream(InRun("metrics.jsonl")) << data;
  fs::create_directories(folder_ / "elsewhere");
  fs::create_symlink(InRun("metrics.jsonl"), folder_ / "elsewhere/link.jsonl");
  fs::create_hard_link(InRun("metrics.jsonl"), folder_ / "elsewhere/hard.jsonl");
  Config config = Job();
  config.overwrite = true;
  for (const fs::path& path : {InRun("metrics.jsonl"), folder_ / "elsewhere/link.jsonl",
                               folder_ / "elsewhere/hard.jsonl", InRun("../run/./metrics.jsonl")}) {
    config.training.dataset_path = {path.string()};
    const std::string message = Refusal(config, ErrorCode::kConflictingOptions);
    ExpectPart(message, "--training.dataset_path names ");
    ExpectPart(message, "metrics.jsonl");
    ExpectPart(message, "--dump_folder");
    EXPECT_EQ(TextOf(InRun("metrics.jsonl")), data);
  }
  config.training.dataset_path = {};
  config.validation.enable = true;
  config.validation.dataset_path = {InRun("metrics.jsonl").string()};
  ExpectPart(Refusal(config, ErrorCode::kConflictingOptions), "--validation.dataset_path names ");

  // The file of --config, unless gt has written it.
  fs::remove_all(folder_ / "run");
  config = Job();
  fs::create_directories(InRun(""));
  std::ofstream(InRun("config.toml")) << "# mine";
  config.overwrite = true;
  config.config_files = {InRun("config.toml").string()};
  ExpectPart(Refusal(config, ErrorCode::kConflictingOptions), "--config names ");
  EXPECT_EQ(TextOf(InRun("config.toml")), "# mine");
  fs::remove(InRun("config.toml"));
  config.config_files = {};
  Train(config);
  config.config_files = {InRun("config.toml").string()};
  Train(config);
}

TEST_F(RunFolderTest, FilesThatAKilledRunLeftAreRemoved) {
  fs::create_directories(InRun(""));
  for (const char* name : {".config.toml.tmp-12-3", ".metrics.jsonl.tmp-1-1", ".run.json.tmp-7-1",
                           ".notes.tmp-12-3", ".config.toml.tmp-", ".config.toml.tmp-1-x"}) {
    std::ofstream(InRun(name)) << "torn";
  }
  Train(Job());
  for (const char* name :
       {".config.toml.tmp-12-3", ".metrics.jsonl.tmp-1-1", ".run.json.tmp-7-1"}) {
    EXPECT_FALSE(fs::exists(InRun(name))) << name;
  }
  for (const char* name : {".notes.tmp-12-3", ".config.toml.tmp-", ".config.toml.tmp-1-x"}) {
    EXPECT_TRUE(fs::exists(InRun(name))) << name;
  }
}

TEST_F(RunFolderTest, WhatWillMoveIsNamed) {
  Config config = Job();
  EXPECT_TRUE(RunFolder(config).WhatIsThere().empty());
  EXPECT_FALSE(fs::exists(folder_ / "run")) << "an empty folder stays behind";
  {
    RunFolder folder(config);
    folder.WillWrite("passes");  // before the first step
    fs::create_directory(InRun("passes"));
    EXPECT_TRUE(folder.WhatIsThere().empty()) << "dumps of this run are no earlier results";
    folder.Begin(/*continues=*/false);
    EXPECT_TRUE(fs::exists(InRun("passes")));
  }
  fs::remove_all(folder_ / "run");
  config.checkpoint.enable = true;
  Train(config);
  config.checkpoint.enable = false;
  const std::vector<std::string> lines = RunFolder(config).WhatIsThere();
  ASSERT_EQ(lines.size(), 2u);
  const std::string today = LocalTimeText(std::time(nullptr)).substr(0, 4);
  ExpectPart(lines[0], "the results of a run of " + today);
  ExpectPart(lines[0], fmt::format(", 2 steps, move to {} after the first step: metrics.jsonl, "
                                   "config.toml, hf",
                                   InRun("previous").string()));
  ExpectPart(lines[1],
             "has 1 checkpoint, the latest of step 2: this run begins anew and leaves it");
  ExpectPart(lines[1], "--checkpoint.enable");
  EXPECT_EQ(FolderWithoutCheckpoints(InRun("checkpoint")), InRun("checkpoint-2"));
  EXPECT_EQ(FolderWithoutCheckpoints(InRun("none")), InRun("none"));

  // The folder that it would read from, under any name.
  const std::string weights = TextOf(InRun("hf/model.safetensors"));
  fs::create_directory_symlink(InRun("hf"), folder_ / "link");
  config.overwrite = true;
  for (const fs::path& source : {InRun("hf"), InRun("hf/"), folder_ / "link"}) {
    config.model.hf_path = source.string();
    const std::string message = Refusal(config, ErrorCode::kConflictingOptions);
    ExpectPart(message, "--model.hf_path names " + source.string());
    ExpectPart(message, "--dump_folder");
  }
  EXPECT_EQ(TextOf(InRun("hf/model.safetensors")), weights);
}

// By default every run has a folder, and a job with checkpoints finds its own.
TEST_F(RunFolderTest, EveryRunHasAFolderAndTheLastOneHasAName) {
  Config config = Job();
  config.dump_folder = (folder_ / "runs/{model}-{time}").string();
  const auto folders = [this] {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_ / "runs")) {
      if (!entry.is_symlink()) found.push_back(entry.path());
    }
    return found.size();
  };
  const fs::path latest = folder_ / "runs/latest";
  Train(config);
  EXPECT_TRUE(fs::read_symlink(latest).string().starts_with("llama3-tiny-")) << latest;
  EXPECT_NE(TextOf(latest / "metrics.jsonl"), "");
  Config bad = config;
  bad.training.memory_limit_gb = 1e-5;
  const fs::path before = fs::read_symlink(latest);
  EXPECT_THROW(Train(bad), Error);
  EXPECT_EQ(fs::read_symlink(latest), before);
  EXPECT_EQ(folders(), 1u) << "a run that did nothing has left a folder";

  config.checkpoint.enable = true;
  Train(config);
  const fs::path first = fs::read_symlink(latest);
  EXPECT_EQ(folders(), 2u);
  config.training.steps = 3;
  EXPECT_EQ(Train(config).steps, 3) << "continues";
  EXPECT_EQ(fs::read_symlink(latest), first);
  config.training.seed = 5;
  Train(config);
  EXPECT_NE(fs::read_symlink(latest), first) << "another job continued it";
  EXPECT_EQ(folders(), 3u);
}

TEST(DumpFolder, FillsItsPlaceholders) {
  Config config;
  config.dump_folder = "out/{model}-{time}/{model}";
  const std::string filled = FillDumpFolder(config, 0);
  EXPECT_TRUE(filled.starts_with("out/llama3-debugmodel-19")) << filled;
  EXPECT_TRUE(filled.ends_with("/llama3-debugmodel")) << filled;
  config.model.hf_path = "/models/Qwen 3/";
  config.dump_folder = "{model}";
  EXPECT_EQ(FillDumpFolder(config, 0), "Qwen_3");
  EXPECT_EQ(FolderOfRuns("out/a{time}"), "out");
  EXPECT_EQ(FolderOfRuns("{time}"), ".");
  EXPECT_EQ(FolderOfRuns("/{time}"), "/");
  EXPECT_EQ(DumpFolderProblem("out"), "");
  EXPECT_NE(DumpFolderProblem("out/{day}").find("{day}"), std::string::npos);
  EXPECT_NE(DumpFolderProblem("out/{").find("{model}"), std::string::npos);
}

}  // namespace
}  // namespace gt
