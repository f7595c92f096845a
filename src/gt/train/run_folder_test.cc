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
  for (const std::string name : {"config.toml", "metrics.jsonl", "hf/config.json"}) {
    fs::create_directories(InRun(name));
    ExpectPart(Refusal(Job(), ErrorCode::kCannotWrite), name);
    fs::remove_all(folder_ / "run");
  }
  fs::create_directories(folder_ / "run");
  std::ofstream(InRun("hf")) << "notes of mine";
  ExpectPart(Refusal(Job(), ErrorCode::kCannotWrite), "a part of the path is a file");
  EXPECT_EQ(TextOf(InRun("hf")), "notes of mine");
  Config without = Job();
  without.checkpoint.last_save_in_hf = false;
  EXPECT_EQ(Train(without).steps, 2);
}

TEST_F(RunFolderTest, ResultsThatAreReplacedAreNamed) {
  Config config = Job();
  EXPECT_TRUE(RunFolder(config).WhatIsThere().empty());
  config.checkpoint.enable = true;
  Train(config);
  config.checkpoint.enable = false;
  const std::vector<std::string> lines = RunFolder(config).WhatIsThere();
  ASSERT_EQ(lines.size(), 2u);
  const std::string today = LocalTimeText(std::time(nullptr)).substr(0, 4);
  ExpectPart(lines[0], "replacing the results of a run of " + today);
  ExpectPart(lines[0],
             fmt::format(", 2 steps, in {}: metrics.jsonl, config.toml, hf", config.dump_folder));
  ExpectPart(lines[1],
             "has 1 checkpoint, the latest of step 2: this run begins anew and leaves it");
  ExpectPart(lines[1], "--checkpoint.enable");
  EXPECT_EQ(FolderWithoutCheckpoints(InRun("checkpoint")), InRun("checkpoint-2"));
  EXPECT_EQ(FolderWithoutCheckpoints(InRun("none")), InRun("none"));

  // The folder that it would read from, under any name.
  const std::string weights = TextOf(InRun("hf/model.safetensors"));
  fs::create_directory_symlink(InRun("hf"), folder_ / "link");
  for (const fs::path& source : {InRun("hf"), InRun("hf/"), folder_ / "link"}) {
    config.model.hf_path = source.string();
    const std::string message = Refusal(config, ErrorCode::kConflictingOptions);
    ExpectPart(message, "--model.hf_path " + source.string());
    ExpectPart(message, "--dump_folder");
  }
  EXPECT_EQ(TextOf(InRun("hf/model.safetensors")), weights);
  config.checkpoint.last_save_in_hf = false;
  EXPECT_EQ(Train(config).steps, 2);
}

}  // namespace
}  // namespace gt
