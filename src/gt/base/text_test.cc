#include "gt/base/text.h"

#include <gtest/gtest.h>

namespace gt {
namespace {

TEST(Text, TrimRemovesSpaceOnBothSides) {
  EXPECT_EQ(Trim("  a b\t\r\n"), "a b");
  EXPECT_EQ(Trim(" \n"), "");
  EXPECT_EQ(Trim(""), "");
}

TEST(Text, SplitKeepsEmptyPartsButNotOfEmptyText) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(Split("a,,b", ','), (Parts{"a", "", "b"}));
  EXPECT_EQ(Split("a,", ','), (Parts{"a", ""}));
  EXPECT_EQ(Split("a", ','), (Parts{"a"}));
  EXPECT_EQ(Split("", ','), Parts{});
}

TEST(Text, JoinPutsTheSeparatorBetween) {
  const std::vector<std::string> parts = {"a", "b"};
  EXPECT_EQ(Join(parts, ", "), "a, b");
  EXPECT_EQ(Join(std::vector<std::string>{}, ", "), "");
}

// Error messages quote user input, so a terminal escape in it must not reach the terminal.
TEST(Text, ShellWordsSurviveTheShell) {
  EXPECT_EQ(ShellWord("/tmp/run_1/hf"), "/tmp/run_1/hf");
  EXPECT_EQ(ShellWord("my run"), "'my run'");
  EXPECT_EQ(ShellWord("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(ShellWord(""), "''");
}

TEST(Text, QuotedEscapesControlCharacters) {
  EXPECT_EQ(Quoted("a\"b\\c\n\t\x1b[31m\x7f"), R"("a\"b\\c\n\t\u001B[31m\u007F")");
  EXPECT_EQ(Quoted("é"), "\"é\"");
}

TEST(Text, WrappedKeepsLinesWithinTheWidth) {
  EXPECT_EQ(Wrapped("one two three", 9, 2), "one two\n  three");
  EXPECT_EQ(Wrapped("averyveryverylongword b", 8, 0), "averyveryverylongword\nb");
  EXPECT_EQ(Wrapped("", 8, 0), "");
}

TEST(Text, EditDistanceCountsSwapsOfNeighboursOnce) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("steps", "stpes"), 1u);
  EXPECT_EQ(EditDistance("same", "same"), 0u);
}

const std::vector<std::string> kOptions = {
    "training.steps", "training.seq_len",          "training.seed",  "optimizer.lr",
    "optimizer.eps",  "lr_scheduler.warmup_steps", "training.dtype", "device"};

struct Meant {
  std::string written;
  std::string meant;
};

class NearestNameTest : public ::testing::TestWithParam<Meant> {};

TEST_P(NearestNameTest, FindsWhatWasMeant) {
  EXPECT_EQ(NearestName(GetParam().written, kOptions), GetParam().meant);
}

INSTANTIATE_TEST_SUITE_P(Slips, NearestNameTest,
                         ::testing::Values(Meant{"training.step", "training.steps"},
                                           Meant{"trainign.steps", "training.steps"},
                                           Meant{"Training.Seq-Len", "training.seq_len"},
                                           Meant{"steps", "training.steps"},
                                           Meant{"lr", "optimizer.lr"},
                                           Meant{"training.lr", "optimizer.lr"},
                                           Meant{"warmup", "lr_scheduler.warmup_steps"},
                                           Meant{"devcie", "device"}),
                         [](const auto& test) { return "Case" + std::to_string(test.index); });

TEST(Text, NearestNameKeepsQuietWhenNothingIsNear) {
  EXPECT_EQ(NearestName("banana", kOptions), std::nullopt);
  EXPECT_EQ(NearestName("", kOptions), std::nullopt);
  EXPECT_EQ(NearestName("x", kOptions), std::nullopt);
  EXPECT_EQ(NearestName(std::string(100000, 'x'), kOptions), std::nullopt);
  EXPECT_EQ(NearestName("steps", {}), std::nullopt);
}

TEST(Text, DidYouMeanEndsAMessage) {
  EXPECT_EQ(DidYouMean("training.step", kOptions, "--"), "; did you mean --training.steps?");
  EXPECT_EQ(DidYouMean("banana", kOptions, "--"), "");
}

enum class Color { kRed, kBlue };

}  // namespace

template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<Color> = {"red", "blue"};

namespace {

TEST(Text, EnumsHaveNamesBothWays) {
  EXPECT_EQ(EnumName(Color::kBlue), "blue");
  EXPECT_EQ(EnumFromName<Color>("red"), Color::kRed);
  EXPECT_EQ(EnumFromName<Color>("green"), std::nullopt);
}

}  // namespace
}  // namespace gt
