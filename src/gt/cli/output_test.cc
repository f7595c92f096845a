// Output that cannot be written: the program says so, and what was there before is not lost.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gt/testing/shell.h"
#include "gt/testing/temp_folder.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

using testing::ShellOutcome;

// $GT is the program, $IN a graph, $DIR a folder.
class OutputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream graph(folder_ / "in.gtir");
    graph << "graph @g(%x0: input \"x\" f32[4]) {\n  modules { block: \"layers.0\" }\n";
    // Longer than any buffer.
    for (int i = 0; i < 3000; ++i) {
      graph << fmt::format("  %x{} = aten::neg(%x{}) : f32[4] {{module = \"layers.0\"}}\n", i + 1,
                           i);
    }
    graph << "  return result \"y\" %x3000\n}\n";
  }

  ShellOutcome Shell(const std::string& script) const {
    return testing::RunInShell(fmt::format("export GT_HOME={} GT={} DIR={} IN={}/in.gtir; {}",
                                           GT_SOURCE_DIR, GT_BINARY, folder_.path().string(),
                                           folder_.path().string(), script));
  }

  std::string TextOf(const std::string& name) const { return testing::ReadText(folder_ / name); }

  testing::TempFolder folder_;
};

// Little output, which waits in a buffer until the end, and much.
TEST_F(OutputTest, ALostStandardOutputIsAnError) {
  for (const char* command :
       {"docs errors", "docs passes", "opt $IN", "opt --list", "--help", "info --model.flavor tiny",
        "draw --module_fqn layers.0 $IN", "trace --model.flavor tiny --training.seq_len 16"}) {
    const ShellOutcome outcome = Shell(fmt::format("$GT {} 2>&1 >/dev/full", command));
    EXPECT_EQ(outcome.status, 1) << command << outcome.output;
    EXPECT_NE(outcome.output.find("GT-E0704"), std::string::npos) << command << outcome.output;
    EXPECT_NE(outcome.output.find("No space left"), std::string::npos) << command;
  }
  const ShellOutcome closed = Shell("$GT docs errors 2>&1 >&-");
  EXPECT_EQ(closed.status, 1) << closed.output;
}

TEST_F(OutputTest, AReaderThatHasSeenEnoughIsNoNews) {
  for (const char* ignoring : {"", "trap '' PIPE; "}) {
    const ShellOutcome outcome = Shell(
        fmt::format("{}exec 4>&1; {{ $GT opt $IN 2>&4; echo $? >$DIR/status; }} | :", ignoring));
    EXPECT_EQ(outcome.output, "");
    EXPECT_EQ(TextOf("status"), "141\n");
  }
}

// The run continues to its end.
TEST_F(OutputTest, ATrainingRunOutlivesTheReaderOfItsLog) {
  const ShellOutcome outcome = Shell(
      "exec 4>&1; { $GT train --device cpu --model.flavor tiny --model.tokenizer_path bytes "
      "--training.seq_len 16 --training.steps 400 --dump_folder $DIR/run 2>&4; "
      "echo $? >$DIR/status; } | grep -m1 -q 'step *1/400'");
  EXPECT_EQ(outcome.output.find("GT-E"), std::string::npos) << outcome.output;
  EXPECT_EQ(TextOf("status"), "141\n");
  const std::string metrics = TextOf("run/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 400) << metrics;
}

TEST_F(OutputTest, AFileThatCannotBeWrittenStaysAsItWas) {
  std::ofstream(folder_ / "out") << "old";
  for (const char* command :
       {"opt $IN -o $DIR/out", "draw --module_fqn layers.0 $IN --output $DIR/out",
        "trace --model.flavor tiny --training.seq_len 16 --output $DIR/out",
        "memory --model.flavor tiny --training.seq_len 16 --svg $DIR/out",
        "simulate --model.flavor tiny --training.seq_len 16 --trace $DIR/out"}) {
    const ShellOutcome outcome = Shell(fmt::format("ulimit -f 4; $GT {} 2>&1", command));
    EXPECT_EQ(outcome.status, 1) << command << outcome.output;
    EXPECT_NE(outcome.output.find("GT-E0704"), std::string::npos) << command << outcome.output;
    EXPECT_EQ(TextOf("out"), "old") << command;
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 2)
        << command;
  }
}

}  // namespace
}  // namespace gt
