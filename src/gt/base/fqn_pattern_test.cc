#include "gt/base/fqn_pattern.h"

#include <gtest/gtest.h>

namespace gt {
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

}  // namespace
}  // namespace gt
