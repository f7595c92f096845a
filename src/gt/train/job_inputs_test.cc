// Ranks that read different files are refused before the first step, and a run that continues finds
// the data that it was saved with.
#include "gt/train/job_inputs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "gt/base/error.h"
#include "gt/job/config.h"
#include "gt/launch/launcher.h"
#include "gt/launch/processes_test_util.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/trainer.h"

namespace gt::job_inputs_test {
namespace {

namespace fs = std::filesystem;

void Write(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(text.data(), std::ssize(text));
}

std::string Text(char letter = 'a') {
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("line {} of the text {}\n", i, letter);
  return text;
}

// Each rank runs in a folder of its own, so that the same relative paths are different files.
class RanksWithFilesOfTheirOwn : public ::testing::Test {
 protected:
  RanksWithFilesOfTheirOwn() {
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    for (const char* rank : {"0", "1"}) {
      const fs::path own = folder_ / rank;
      Write(own / "data/a.txt", Text());
      Write(own / "held_out.txt", Text('v'));
      fs::copy(GT_SOURCE_DIR "/tests/parity/qwen3_moe", own / "model");
      Write(own / "tokens.bin", std::string(4096, '\1'));
      Write(own / "tokens.bin.json", R"({"dtype": "uint16"})");
      Write(own / "loads.json", R"({"version": 1})");
    }
  }

  fs::path OfRank1(const std::string& name) const { return folder_ / "1" / name; }

  // What the ranks said. Empty: they trained.
  std::string Problem(const std::string& flags) {
    LaunchOptions options;
    QuietLog quiet;
    CollectedOutput out, err;
    options.processes = 2;
    options.program = "/bin/sh";
    options.process_set.stdout_fd = out.fd();
    options.process_set.stderr_fd = err.fd();
    options.process_set.grace_seconds = 5;
    options.arguments = {
        "-c",
        fmt::format("cd {}/$RANK && exec {} train --device cpu --model.tokenizer_path bytes "
                    "--training.seq_len 16 --training.local_batch_size 1 --training.steps 1 "
                    "--checkpoint.last_save_in_hf=false --overwrite --dump_folder run {} 2>&1",
                    folder_.path().string(), GT_BINARY, flags)};
    return Launch(options) == 0 ? "" : out.Text() + err.Text();
  }

  void ExpectRefusal(const std::string& flags, const std::string& option, const std::string& name) {
    const std::string problem = Problem(flags);
    EXPECT_NE(problem.find("GT-E0805"), std::string::npos) << problem;
    EXPECT_NE(problem.find("the list of input files of rank 1 differs from that of rank 0"),
              std::string::npos)
        << problem;
    EXPECT_NE(problem.find(fmt::format("'{} {}: ", option, name)), std::string::npos) << problem;
    EXPECT_EQ(problem.find("step 1/1"), std::string::npos) << problem;
  }

  testing::TempFolder folder_;
};

TEST_F(RanksWithFilesOfTheirOwn, AreRefusedWhereTheFilesDiffer) {
  const std::string tiny = "--model.flavor tiny --training.dataset_path data ";
  EXPECT_EQ(Problem(tiny), "");

  Write(OfRank1("data/a.txt"), Text('b'));  // as large
  ExpectRefusal(tiny, "--training.dataset_path", "a.txt");
  ExpectRefusal(tiny + "--comm.verify_inputs full", "--training.dataset_path", "a.txt");
  EXPECT_EQ(Problem(tiny + "--comm.verify_inputs none"), "");
  Write(OfRank1("data/a.txt"), Text());

  Write(OfRank1("data/b.txt"), "one more");
  ExpectRefusal(tiny, "--training.dataset_path", "b.txt");
  fs::remove(OfRank1("data/b.txt"));

  const std::string validated =
      tiny + "--validation.enable --validation.dataset_path held_out.txt ";
  Write(OfRank1("held_out.txt"), Text('w'));
  ExpectRefusal(validated, "--validation.dataset_path", "held_out.txt");
}

TEST_F(RanksWithFilesOfTheirOwn, AreRefusedWhereTheirModelsDiffer) {
  const std::string hf = "--model.hf_path model --training.dataset_path data ";
  EXPECT_EQ(Problem(hf), "");
  std::string weights = testing::ReadText(OfRank1("model/model.safetensors"));
  weights[weights.size() - 5] ^= 1;
  Write(OfRank1("model/model.safetensors"), weights);
  ExpectRefusal(hf, "--model.hf_path", "model.safetensors");
}

TEST_F(RanksWithFilesOfTheirOwn, AreRefusedWhereDescriptionsOfDataDiffer) {
  const std::string tokens = "--model.flavor tiny --training.dataset_path tokens.bin ";
  Write(OfRank1("tokens.bin.json"), R"({"dtype": "uint32"})");
  ExpectRefusal(tokens, "--training.dataset_path", "tokens.bin.json");
}

class ContinuedData : public ::testing::Test {
 protected:
  ContinuedData() {
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    Write(folder_ / "data.txt", Text());
    config_.device = DeviceChoice::kCpu;
    config_.threads = 1;
    config_.model.flavor = "tiny";
    config_.model.tokenizer_path = "bytes";
    config_.training.dataset_path = {(folder_ / "data.txt").string()};
    config_.training.seq_len = 16;
    config_.training.local_batch_size = 1;
    config_.training.steps = 1;
    config_.checkpoint.enable = true;
    config_.checkpoint.last_save_in_hf = false;
    config_.dump_folder = (folder_ / "run").string();
  }

  std::string Continue(int64_t steps) {
    config_.training.steps = steps;
    try {
      Train(config_);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCheckpointMismatch) << error.what();
      return error.message();
    }
  }

  testing::TempFolder folder_;
  Config config_;
};

TEST_F(ContinuedData, MustHaveTheContentsThatItHad) {
  ASSERT_EQ(Continue(1), "");
  ASSERT_EQ(Continue(2), "");
  Write(folder_ / "data.txt", Text('b'));
  const std::string problem = Continue(3);
  for (const char* part : {"other contents", "xxh64", "--checkpoint.accept_changed_data"}) {
    EXPECT_NE(problem.find(part), std::string::npos) << problem;
  }
  config_.checkpoint.accept_changed_data = true;
  EXPECT_EQ(Continue(3), "");
  // From here on the new data is the data of the run.
  config_.checkpoint.accept_changed_data = false;
  EXPECT_EQ(Continue(4), "");
}

// On another number of ranks, too.
TEST_F(ContinuedData, MustHaveItsContentsOnMoreRanks) {
  ASSERT_EQ(Continue(1), "");
  Write(folder_ / "data.txt", Text('b'));
  config_.ranks = 2;
  EXPECT_NE(Continue(2).find("other contents"), std::string::npos);
}

// How ranks compare their files does not decide whether a run goes on.
TEST_F(ContinuedData, DoesNotDependOnWhatRanksCompare) {
  ASSERT_EQ(Continue(1), "");
  for (const VerifyInputs compared :
       {VerifyInputs::kFull, VerifyInputs::kNone, VerifyInputs::kSampled}) {
    config_.comm.verify_inputs = compared;
    EXPECT_EQ(Continue(config_.training.steps + 1), "") << EnumName(compared);
  }
}

}  // namespace
}  // namespace gt::job_inputs_test
