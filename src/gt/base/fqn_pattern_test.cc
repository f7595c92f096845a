#include "gt/base/fqn_pattern.h"

#include <gtest/gtest.h>

namespace gt::fqn_pattern_test {
namespace {

TEST(FqnPattern, ComparesComponentByComponent) {
  EXPECT_TRUE(MatchesFqn("layers.3.moe", "layers.3.moe"));
  EXPECT_FALSE(MatchesFqn("layers.3.moe", "layers.3.moe.experts"));
  EXPECT_FALSE(MatchesFqn("layers.3.moe", "layers.30.moe"));
  EXPECT_FALSE(MatchesFqn("layers.3", "layers"));
}

TEST(FqnPattern, StarIsOneComponent) {
  EXPECT_TRUE(MatchesFqn("layers.*", "layers.12"));
  EXPECT_FALSE(MatchesFqn("layers.*", "layers"));
  EXPECT_FALSE(MatchesFqn("layers.*", "layers.12.moe"));
  EXPECT_TRUE(MatchesFqn("*.*.moe", "layers.12.moe"));
}

TEST(FqnPattern, TwoStarsAreAnyNumber) {
  EXPECT_TRUE(MatchesFqn("**", "norm.weight"));
  EXPECT_TRUE(MatchesFqn("**.weight", "layers.0.ffn_norm.weight"));
  EXPECT_TRUE(MatchesFqn("layers.**", "layers"));
  EXPECT_TRUE(MatchesFqn("**.ffn_norm.**.weight", "layers.0.ffn_norm.weight"));
  EXPECT_FALSE(MatchesFqn("**.bias", "layers.0.ffn_norm.weight"));
  EXPECT_TRUE(MatchesFqn("**.a.**.a", "a.b.a.c.a"));
}

// Which of a module's ancestors, or itself, a pattern selects: the outermost.
TEST(FqnPattern, FindsTheShortestLeadingPart) {
  EXPECT_EQ(MatchingPrefix("layers.*", "layers.3.moe.router"), "layers.3");
  EXPECT_EQ(MatchingPrefix("layers.*", "layers.3"), "layers.3");
  EXPECT_EQ(MatchingPrefix("layers.*.moe", "layers.3.moe.router"), "layers.3.moe");
  EXPECT_EQ(MatchingPrefix("layers.3", "layers.30.moe"), std::nullopt);
  EXPECT_EQ(MatchingPrefix("layers.*.moe", "layers.3"), std::nullopt);
  EXPECT_EQ(MatchingPrefix("layers.*.moe", "layers.3.moe_2"), std::nullopt);
  EXPECT_EQ(MatchingPrefix("norm", "norm"), "norm");
}

TEST(FqnPattern, TwoStarsSelectTheOutermostModule) {
  EXPECT_EQ(MatchingPrefix("**", "layers.3.moe"), "layers");
  EXPECT_EQ(MatchingPrefix("**.moe", "layers.3.moe.shared.moe"), "layers.3.moe");
  EXPECT_EQ(MatchingPrefix("layers.**", "layers.3"), "layers");
  EXPECT_EQ(MatchingPrefix("**.moe", "layers.3.attention"), std::nullopt);
}

// What is outside of every module is in none.
TEST(FqnPattern, NothingLeadsTheEmptyName) {
  EXPECT_EQ(MatchingPrefix("**", ""), std::nullopt);
  EXPECT_EQ(MatchingPrefix("layers.*", ""), std::nullopt);
}

TEST(FqnPattern, SaysWhatIsWrongWithAPattern) {
  for (const char* good : {"layers.*", "layers.*.moe", "**", "**.moe", "norm", "layers.0.w-1_x"}) {
    EXPECT_EQ(FqnPatternProblem(good), "") << good;
  }
  for (const char* empty : {"", ".", "layers..moe", ".layers", "layers."}) {
    EXPECT_NE(FqnPatternProblem(empty).find("is empty"), std::string::npos) << empty;
  }
  for (const char* bad : {"layers.x*", "layers.***", "layers.[0]", "layers.0/moe", "a b"}) {
    EXPECT_NE(FqnPatternProblem(bad).find("neither a name nor *"), std::string::npos) << bad;
  }
  EXPECT_NE(FqnPatternProblem("layers.x*.moe").find("'x*'"), std::string::npos);
}

}  // namespace
}  // namespace gt::fqn_pattern_test
