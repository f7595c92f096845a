#include "gt/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gt/base/error.h"
#include "gt/data/permutation.h"

namespace gt {
namespace {

// Descending by logit; equal ones by id, so that the order never depends on the sort.
bool Likelier(const std::pair<int32_t, double>& a, const std::pair<int32_t, double>& b) {
  return a.second > b.second || (a.second == b.second && a.first < b.first);
}

std::vector<std::pair<int32_t, double>> CheckedLogits(std::span<const float> logits) {
  std::vector<std::pair<int32_t, double>> checked;
  checked.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    // Minus infinity is a token that can never be.
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
      Fail(ErrorCode::kBadPrompt,
           "the model's logit of token {} is {}: its weights are damaged, or the run diverged; use "
           "an earlier checkpoint",
           i, logits[i]);
    }
    checked.emplace_back(static_cast<int32_t>(i), static_cast<double>(logits[i]));
  }
  if (checked.empty()) Fail(ErrorCode::kBadPrompt, "the model gives no logits to choose from");
  return checked;
}

// Turns logits, the largest first or at least known, into chances that add up to 1.
std::vector<TokenChance> Softmax(const std::vector<std::pair<int32_t, double>>& logits,
                                 double temperature) {
  double largest = std::max_element(logits.begin(), logits.end(), [](auto& a, auto& b) {
                     return a.second < b.second;
                   })->second;
  std::vector<TokenChance> chances;
  chances.reserve(logits.size());
  double sum = 0.0;
  for (auto [token, logit] : logits) {
    // With all logits at minus infinity nothing is likelier than anything else.
    double weight = logit == largest ? 1.0 : std::exp((logit - largest) / temperature);
    chances.push_back({token, weight});
    sum += weight;
  }
  for (TokenChance& entry : chances) entry.chance /= sum;
  return chances;
}

// The likeliest that together reach `share`, at least one.
void KeepShare(std::vector<TokenChance>& chances, double share) {
  std::sort(chances.begin(), chances.end(), [](const TokenChance& a, const TokenChance& b) {
    return a.chance > b.chance || (a.chance == b.chance && a.token < b.token);
  });
  double kept = 0.0;
  size_t count = 0;
  while (count < chances.size() && kept < share) kept += chances[count++].chance;
  chances.resize(std::max<size_t>(count, 1));
  for (TokenChance& entry : chances) entry.chance /= kept;
}

}  // namespace

std::vector<TokenChance> NextTokenChances(std::span<const float> logits,
                                          const SamplingOptions& options) {
  std::vector<std::pair<int32_t, double>> candidates = CheckedLogits(logits);
  if (options.temperature == 0.0) {
    return {{std::min_element(candidates.begin(), candidates.end(), Likelier)->first, 1.0}};
  }
  auto kept = static_cast<size_t>(options.top_k);
  if (kept > 0 && kept < candidates.size()) {
    auto end = candidates.begin() + options.top_k;
    std::nth_element(candidates.begin(), end, candidates.end(), Likelier);
    candidates.resize(kept);
    // nth_element leaves an order of its own; the draw must not depend on it.
    std::sort(candidates.begin(), candidates.end(), Likelier);
  }
  std::vector<TokenChance> chances = Softmax(candidates, options.temperature);
  if (options.top_p < 1.0) KeepShare(chances, options.top_p);
  return chances;
}

Sampler::Sampler(const SamplingOptions& options, int64_t seed, int64_t sample)
    : options_(options),
      stream_(CombineSeeds(static_cast<uint64_t>(seed), static_cast<uint64_t>(sample))) {}

double Sampler::NextUniform() {
  constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;  // the stride of splitmix64
  return static_cast<double>(MixBits(stream_ + kGamma * drawn_++) >> 11) * 0x1p-53;
}

int32_t Sampler::Next(std::span<const float> logits) {
  std::vector<TokenChance> chances = NextTokenChances(logits, options_);
  double target = NextUniform(), passed = 0.0;
  for (const TokenChance& entry : chances) {
    passed += entry.chance;
    if (target < passed) return entry.token;
  }
  // Rounding left the sum a little below 1: take the last token that has a chance.
  auto possible = std::find_if(chances.rbegin(), chances.rend(),
                               [](const TokenChance& entry) { return entry.chance > 0.0; });
  return possible->token;
}

}  // namespace gt
