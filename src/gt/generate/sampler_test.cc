#include "gt/generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "gt/base/error.h"
#include "gt/testing/temp_folder.h"

namespace gt::sampler_test {
namespace {

// Pearson's statistic of 20000 draws from 8 tokens. With 7 degrees of freedom it exceeds 24.3 once
// in a thousand times; drawing from another temperature gives hundreds.
double ChiSquare(const SamplingOptions& drawn, const SamplingOptions& expected) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 0.5f, 2.0f, -0.5f, 1.5f, 0.25f};
  constexpr int kDraws = 20000;
  Sampler sampler(drawn, 7);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sampler.Next(logits))];
  double total = 0.0, statistic = 0.0;
  for (float logit : logits) total += std::exp(logit / expected.temperature);
  for (size_t i = 0; i < logits.size(); ++i) {
    double mean = kDraws * std::exp(logits[i] / expected.temperature) / total;
    statistic += (counts[i] - mean) * (counts[i] - mean) / mean;
  }
  return statistic;
}

TEST(Sampler, FollowsTheDistribution) {
  SamplingOptions usual{.temperature = 0.7, .top_k = 0}, warmer{.temperature = 0.8, .top_k = 0};
  EXPECT_LT(ChiSquare(usual, usual), 24.3);
  EXPECT_LT(ChiSquare(warmer, warmer), 24.3);
  EXPECT_GT(ChiSquare(usual, warmer), 100.0);
}

std::set<int32_t> Kept(const std::vector<float>& logits, const SamplingOptions& options) {
  std::set<int32_t> kept;
  double sum = 0.0;
  for (const TokenChance& entry : NextTokenChances(logits, options)) {
    kept.insert(entry.token);
    sum += entry.chance;
  }
  EXPECT_NEAR(sum, 1.0, 1e-12);
  return kept;
}

TEST(Sampler, TopKAndTopPRestrict) {
  // Chances 0.4, 0.1, 0.3, 0.2.
  std::vector<float> logits = {std::log(0.4f), std::log(0.1f), std::log(0.3f), std::log(0.2f)};
  using Tokens = std::set<int32_t>;
  auto kept = [&](int64_t k, double p) {
    return Kept(logits, {.temperature = 1.0, .top_k = k, .top_p = p});
  };
  EXPECT_EQ(kept(0, 1.0), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(kept(100, 1.0), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(kept(2, 1.0), (Tokens{0, 2}));
  EXPECT_EQ(kept(1, 1.0), (Tokens{0}));
  EXPECT_EQ(kept(0, 0.39), (Tokens{0}));
  EXPECT_EQ(kept(0, 0.69), (Tokens{0, 2}));
  EXPECT_EQ(kept(0, 0.71), (Tokens{0, 2, 3}));
  EXPECT_EQ(kept(0, 1e-9), (Tokens{0}));
  // Of what top_k leaves, 0.4 and 0.3, the first has 0.57.
  EXPECT_EQ(kept(2, 0.5), (Tokens{0}));
  EXPECT_EQ(kept(2, 0.6), (Tokens{0, 2}));
}

TEST(Sampler, EqualLogitsAreDecidedByTheSmallerId) {
  std::vector<float> logits = {1.0f, 3.0f, 3.0f, 3.0f};
  EXPECT_EQ(Kept(logits, {.temperature = 0.0}), (std::set<int32_t>{1}));
  EXPECT_EQ(Kept(logits, {.temperature = 1.0, .top_k = 2}), (std::set<int32_t>{1, 2}));
}

TEST(Sampler, TinyTemperaturesAndImpossibleTokensAreFine) {
  const float kNever = -std::numeric_limits<float>::infinity();
  Sampler cold({.temperature = 1e-300, .top_k = 0}, 1);
  EXPECT_EQ(cold.Next(std::vector<float>{1.0f, 2.0f, -3.0f}), 1);
  Sampler sampler({.temperature = 1.0, .top_k = 0}, 1);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(sampler.Next(std::vector<float>{kNever, 0.5f, kNever}), 1);
  }
}

TEST(Sampler, BrokenLogitsAreAnError) {
  Sampler sampler({}, 1);
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    testing::ExpectError(ErrorCode::kBadPrompt, {"token 1", "diverged"}, [&] {
      sampler.Next(std::vector<float>{0.0f, bad});
    });
  }
}

}  // namespace
}  // namespace gt::sampler_test
