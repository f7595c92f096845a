// gt place: what is refused and in which words, and that plans go out and come in.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "gt/testing/shell.h"
#include "gt/testing/temp_folder.h"

namespace gt::place_test {
namespace {

using testing::ShellOutcome;

// A model of two layers on four ranks in a row, unless flags say otherwise. $DIR is an empty folder.
class PlaceTest : public ::testing::Test {
 protected:
  ShellOutcome Place(const std::string& flags,
                     const std::string& job = "--ranks 4 --mesh 4") const {
    return testing::RunInShell(fmt::format(
        "export DIR={}; GT_HOME={} {} place --model.flavor tiny --training.seq_len 16 {} "
        "--compare=false {} 2>&1 < /dev/null",
        folder_.path().string(), GT_SOURCE_DIR, GT_BINARY, job, flags));
  }
  void ExpectRefused(const std::string& flags, const std::string& code, const std::string& words,
                     const std::string& job = "--ranks 4 --mesh 4") const {
    const ShellOutcome outcome = Place(flags, job);
    EXPECT_EQ(outcome.status, 1) << flags << outcome.output;
    EXPECT_NE(outcome.output.find(code), std::string::npos) << flags << outcome.output;
    EXPECT_NE(outcome.output.find(words), std::string::npos) << flags << outcome.output;
  }
  std::string TextOf(const std::string& name) const { return testing::ReadText(folder_ / name); }

  testing::TempFolder folder_;
};

TEST_F(PlaceTest, MeshesThatDoNotFitAreRefused) {
  ExpectRefused("", "GT-E0801", "9 ranks", "--ranks 64 --mesh 3x3");
  ExpectRefused("", "GT-E0801", "'8xx8'", "--ranks 64 --mesh 8xx8");
  ExpectRefused("", "GT-E0801", "at least 1 rank", "--ranks 64 --mesh 0");
}

TEST_F(PlaceTest, PinsThatCannotBeMetAreRefused) {
  ExpectRefused("--pin output.weight", "GT-E0904", "PATTERN=PLACEMENT");
  ExpectRefused("--pin 'nothing=R'", "GT-E0904", "nothing=R");
  ExpectRefused("--pin 'output.weight=S(7)'", "GT-E0904", "output.weight");
  ExpectRefused("--pin 'output.weight=P'", "GT-E0904", "output.weight");
  ExpectRefused("--explain nothing", "GT-E0904", "nothing");
}

TEST_F(PlaceTest, ASoftBudgetIsPaidFor) {
  const ShellOutcome paid = Place("--memory_gb 0.0008 --memory_price 1000");
  EXPECT_EQ(paid.status, 0) << paid.output;
  EXPECT_NE(paid.output.find("charged for memory above the budget"), std::string::npos)
      << paid.output;
}

TEST_F(PlaceTest, FourAxesArePlacedWithABoundThatSaysWhatItIsOver) {
  const ShellOutcome placed =
      Place("--graph " GT_SOURCE_DIR "/tests/placement/ffn.gtir", "--ranks 16 --mesh 2x2x2x2");
  EXPECT_EQ(placed.status, 0) << placed.output;
  EXPECT_NE(placed.output.find("no placement that was looked at takes less"), std::string::npos)
      << placed.output;
}

TEST_F(PlaceTest, TheSmallestBudgetThatIsNamedIsEnough) {
  const ShellOutcome refused = Place("--memory_gb 0.0001");
  EXPECT_EQ(refused.status, 1) << refused.output;
  std::smatch budget;
  ASSERT_TRUE(std::regex_search(refused.output, budget, std::regex("with ([0-9.]+) GiB")))
      << refused.output;
  const ShellOutcome placed = Place("--memory_gb " + budget[1].str());
  EXPECT_EQ(placed.status, 0) << placed.output;
}

TEST_F(PlaceTest, PlansThatCannotBeUsedAreRefused) {
  const std::string job = "--ranks 4";
  ExpectRefused("--plan $DIR/none.json", "GT-E0903", "none.json", job);
  testing::WriteText(folder_ / "bad.json", "{\"mesh\": [4], \"format\"");
  ExpectRefused("--plan $DIR/bad.json", "GT-E0903", "bad.json", job);
  testing::WriteText(folder_ / "other.json", R"({"mesh": [4], "params": {"w": ["f32[8]", "R"]}})");
  ExpectRefused("--plan $DIR/other.json", "GT-E0903", "another model", job);
  ExpectRefused("--plan $DIR/other.json", "GT-E0903", "mesh 4", "--ranks 4 --mesh 2x2");
  ExpectRefused("--plan $DIR/other.json", "GT-E0801", "8", "--ranks 8");
  ExpectRefused("--diff $DIR/other.json", "GT-E0101", "two plans", "");
}

TEST_F(PlaceTest, PlansGoOutAndComeIn) {
  for (const char* name : {"a", "b"}) {
    const ShellOutcome outcome =
        Place(fmt::format("--output $DIR/{0}.json --svg $DIR/{0}.svg", name));
    ASSERT_EQ(outcome.status, 0) << outcome.output;
  }
  EXPECT_EQ(TextOf("a.json"), TextOf("b.json"));
  EXPECT_EQ(TextOf("a.svg"), TextOf("b.svg"));
  EXPECT_EQ(Place("--diff $DIR/a.json $DIR/b.json", "").output, "0 differences\n");
  ASSERT_EQ(Place("--plan $DIR/a.json --output $DIR/again.json", "--ranks 4").status, 0);
  const std::string inputs = "\"inputs\": \\{[^}]*\\}";
  const std::string first = TextOf("a.json"), again = TextOf("again.json");
  std::smatch one, two;
  ASSERT_TRUE(std::regex_search(first, one, std::regex(inputs)));
  ASSERT_TRUE(std::regex_search(again, two, std::regex(inputs)));
  EXPECT_EQ(one[0].str(), two[0].str());
  ASSERT_EQ(Place("--pin 'output.weight=S(0)' --output $DIR/pinned.json").status, 0);
  EXPECT_NE(TextOf("pinned.json").find("\"output.weight\": \"S(0)\""), std::string::npos);
}

TEST_F(PlaceTest, TheSolverAloneReadsProblems) {
  const ShellOutcome outcome = Place(
      "--iopddl " GT_SOURCE_DIR "/tests/fuzz/iopddl/small.json --output $DIR/labels.json", "");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("gap 0.000 %"), std::string::npos) << outcome.output;
  EXPECT_EQ(TextOf("labels.json").front(), '[');
  ExpectRefused("--iopddl " GT_SOURCE_DIR "/tests/fuzz/iopddl/infeasible.json", "GT-E0902", "", "");
  ExpectRefused("--iopddl $DIR/none.json", "GT-E0901", "none.json", "");
}

}  // namespace
}  // namespace gt::place_test
