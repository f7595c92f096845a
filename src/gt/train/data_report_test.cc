#include "gt/train/data_report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "gt/base/error.h"
#include "gt/job/config.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/job_test_util.h"

namespace gt::data_report_test {
namespace {

using testing::TempFolder;
using testing::WriteText;

class DataReportTest : public ::testing::Test {
 protected:
  void SetUp() override { setenv("GT_HOME", GT_SOURCE_DIR, 1); }

  Config Job(const std::string& flavor = "tiny") const {
    Config config;
    config.device = DeviceChoice::kCpu;
    config.model.flavor = flavor;
    config.dump_folder = (folder_ / "run").string();
    return config;
  }

  std::string Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    WriteText(path, text);
    return path.string();
  }

  static DataReport ReportOf(Config config) {
    SettlePrecision(&config, /*on_gpu=*/false);
    DataReport report;
    World::Run(config, [&](World& world) {
      gt::Job job(config, world);
      if (world.first()) report = ReportData(job);
    });
    return report;
  }

  // The only warning.
  static std::string WarningOf(const Config& config) {
    const DataReport report = ReportOf(config);
    EXPECT_EQ(report.warnings.size(), 1u) << Join(report.warnings, "\n");
    return report.warnings.empty() ? "" : report.warnings[0];
  }

  static void ExpectPart(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }

  TempFolder folder_;
};

TEST_F(DataReportTest, TheUsualRunsAreFine) {
  for (const char* flavor : {"debugmodel", "tiny"}) {
    const DataReport report = ReportOf(Job(flavor));
    EXPECT_EQ(report.warnings, std::vector<std::string>()) << flavor;
    ASSERT_EQ(report.lines.size(), 1u);
    ExpectPart(report.lines[0], "45 pieces of text, about ");
    ExpectPart(report.lines[0], "this run reads 307,200 tokens in 1,200 sequences, about ");
  }
  // As README has it.
  Config config = Job();
  config.model.hf_path = GT_SOURCE_DIR "/tests/parity/qwen3_moe";
  config.model.tokenizer_path = "bytes";
  config.training.seq_len = 64;
  EXPECT_EQ(ReportOf(config).warnings, std::vector<std::string>());
}

TEST_F(DataReportTest, NumbersAreThoseOfAllRanks) {
  Config config = Job();
  config.training.dataset_path = {Write("a.txt", std::string(8192, 'x') + "\n")};
  config.training.local_batch_size = 2;
  config.training.seq_len = 64;
  config.training.steps = 10;
  ExpectPart(ReportOf(config).lines[0],
             "one epoch: 1 piece of text, 8,193 tokens; this run reads 1,280 tokens in 20 "
             "sequences, 0.16 epochs");
  config.ranks = 2;
  config.parallelism.data_parallel_shard_degree = 2;
  config.training.global_batch_size = 8;
  Write("b.txt", std::string(8192, 'y') + "\n");
  config.training.dataset_path = {(folder_ / "*.txt").string()};
  ExpectPart(ReportOf(config).lines[0],
             "one epoch: 2 pieces of text, 16,386 tokens; this run reads 5,120 tokens in 80 "
             "sequences, 0.31 epochs");
}

TEST_F(DataReportTest, RepeatedDataIsAWarning) {
  WriteLearnableRows(folder_ / "rows.npy", 40, 32);
  Config config = Job();
  config.training.dataset_path = {(folder_ / "rows.npy").string()};
  config.training.seq_len = 32;
  config.training.local_batch_size = 4;
  config.training.steps = 10;  // exactly one epoch
  const DataReport report = ReportOf(config);
  EXPECT_EQ(report.warnings, std::vector<std::string>());
  ExpectPart(report.lines[0],
             "one epoch: 40 rows, 1,280 tokens; this run reads 1,280 tokens in 40 "
             "sequences, 1 epoch");
  config.training.steps = 11;
  ExpectPart(WarningOf(config),
             "this run reads 1,408 tokens, but one epoch has 1,280: the data is "
             "read 1.1 times");
  // The text that ships is small on purpose, but not that small.
  config = Job();
  config.training.steps = 10'000;
  ExpectPart(WarningOf(config), "the data is read");
}

TEST_F(DataReportTest, ASequenceLongerThanTheDataIsAWarning) {
  Config config = Job();
  config.training.dataset_path = {Write("a.txt", "a short text")};
  config.training.seq_len = 64;
  ExpectPart(WarningOf(config),
             "a sequence of 64 tokens is longer than the whole data set, which "
             "has 12");
}

TEST_F(DataReportTest, BytesThatAreNoTextAreAWarning) {
  std::mt19937 random(3);
  std::string noise;
  for (int i = 0; i < 5000; ++i) noise += static_cast<char>(random());
  Config config = Job();
  config.training.steps = 1;
  Write("data/a.txt", std::string(100'000, 'x'));
  Write("data/b.txt", noise);
  config.training.dataset_path = {(folder_ / "data").string()};
  const std::string warning = WarningOf(config);
  ExpectPart(warning, "b.txt' is read as text, but ");
  ExpectPart(warning, " % of its bytes are not text");
}

TEST_F(DataReportTest, TokenizerAndVocabularyShouldAgree) {
  Config config = Job("debugmodel");
  config.model.tokenizer_path = "bytes";
  ExpectPart(WarningOf(config),
             "'bytes' has 256 tokens, the model's vocabulary 2,048 entries, of "
             "which 1,792 are never used");
  config = Job();
  config.model.vocab_size = 128;
  config.model.tokenizer_path = "bytes";
  ExpectPart(WarningOf(config), "text that contains one of the others ends the run");
  config.model.vocab_size = 1024;
  config.model.tokenizer_path = GT_SOURCE_DIR "/data/tokenizer";
  try {
    ReportOf(config);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTokenOutOfVocabulary);
    ExpectPart(error.what(), "ids up to 2045, but the model's vocabulary has 1024 entries");
  }
}

// Padding is no disagreement.
TEST_F(DataReportTest, VocabulariesMayBePadded) {
  const TextCodec bytes("bytes"), shipped(GT_SOURCE_DIR "/data/tokenizer");
  EXPECT_EQ(VocabularyProblem(bytes, 256), "");
  EXPECT_EQ(VocabularyProblem(bytes, 512), "");
  EXPECT_EQ(VocabularyProblem(shipped, 2048), "");
  EXPECT_EQ(VocabularyProblem(shipped, 2560), "");
  EXPECT_NE(VocabularyProblem(shipped, 128'256), "");
  EXPECT_NE(VocabularyProblem(shipped, 2047), "");  // the last one is special
}

TEST_F(DataReportTest, AFieldIsForJsonLines) {
  Config config = Job();
  config.training.steps = 1;
  config.training.text_field = "body";
  ExpectPart(WarningOf(config), "--training.text_field body is for JSON lines");
  config.training.dataset_path = {
      Write("a.jsonl", "{\"body\": \"" + std::string(5000, 'x') + "\"}")};
  ExpectPart(ReportOf(config).lines[0], "one epoch: 1 document, 5,000 tokens");
}

TEST_F(DataReportTest, WhatIsHeldOutIsSaid) {
  Config config = Job();
  config.training.steps = 1;
  config.validation.split = 0.05;
  const DataReport report = ReportOf(config);
  ASSERT_EQ(report.lines.size(), 2u);
  ExpectPart(report.lines[0], "43 pieces of text");
  ExpectPart(report.lines[1], "validation: 5 % of the data, held out: 2 pieces of text");
}

}  // namespace
}  // namespace gt::data_report_test
