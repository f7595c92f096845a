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

// Another size is another model, not a slip; the same with layers, devices and versions.
TEST(Text, NearestNameTakesNumbersAsTheyAre) {
  const std::vector<std::string> flavors = {"tiny", "1B", "8B", "70B", "405B"};
  for (const char* size : {"7B", "2B", "71B", "13B", "40B", "80B"}) {
    EXPECT_EQ(NearestName(size, flavors), std::nullopt) << size;
  }
  EXPECT_EQ(NearestName("8b", flavors), "8B");
  EXPECT_EQ(NearestName("8", flavors), std::nullopt);
  const std::vector<std::string> fractions = {"0.6B", "1.7B", "4B", "30B-A3B", "235B-A22B"};
  for (const char* size : {"7B", "6B", "1B", "1.8B", "17B", "3B"}) {
    EXPECT_EQ(NearestName(size, fractions), std::nullopt) << size;
  }
  EXPECT_EQ(NearestName("1.7b", fractions), "1.7B");
  EXPECT_EQ(NearestName("30B", fractions), "30B-A3B");
  EXPECT_EQ(NearestName("30B-A3", fractions), "30B-A3B");
  const std::vector<std::string> others = {"layers.9", "layers.1.attention", "h100", "llama3"};
  for (const char* name : {"layers.99", "layers.7.attention", "h300", "llama2"}) {
    EXPECT_EQ(NearestName(name, others), std::nullopt) << name;
  }
  EXPECT_EQ(NearestName("lama3", others), "llama3");
  EXPECT_EQ(NearestName("h10", others), "h100");
  EXPECT_EQ(NearestName("llama", others), "llama3");
}

TEST(Text, NearestNameOfAShortNameIsTheSame) {
  for (const char* name : {"ep", "tp", "l", "xr"}) {
    EXPECT_EQ(NearestName(name, kOptions), std::nullopt) << name;
  }
  EXPECT_EQ(NearestName("module", std::vector<std::string>{"compile.mode"}), std::nullopt);
}

// Who follows such a suggestion gets the opposite of what was asked for.
TEST(Text, NearestNameIsNeverTheContrary) {
  const std::vector<std::string> enabling = {"metrics.enable_tensorboard", "compile.enable_passes"};
  EXPECT_EQ(NearestName("metrics.disable_tensorboard", enabling), std::nullopt);
  EXPECT_EQ(NearestName("compile.no-enable_passes", enabling), std::nullopt);
  const std::vector<std::string> disabling = {"compile.disable_passes"};
  EXPECT_EQ(NearestName("compile.enable_passes", disabling), std::nullopt);
  EXPECT_EQ(NearestName("compile.disable_pases", disabling), "compile.disable_passes");
}

TEST(Text, BooleansAreReadInAnyCase) {
  EXPECT_EQ(BooleanFromText("True"), true);
  EXPECT_EQ(BooleanFromText("FALSE"), false);
  for (const char* text : {"", "1", "yes", "tru", "true "}) {
    EXPECT_EQ(BooleanFromText(text), std::nullopt) << text;
  }
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
