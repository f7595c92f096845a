// How the next token is chosen: on the CPU, in double precision, with one uniform number per token that
// is a function of seed, sample and token index alone. The same seed gives the same text as long as the
// logits are the same, whatever else is generated beside it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gt {

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the likeliest token
  int64_t top_k = 50;        // only the k likeliest; 0: all
  double top_p = 1.0;        // only the likeliest that together reach this share; 1: all
};

struct TokenChance {
  int32_t token = 0;
  double chance = 0.0;
};

// The candidate next tokens and their chances, which add up to 1. First top_k, then top_p of
// what that left. Of equally likely tokens the one with the smaller id is kept.
std::vector<TokenChance> NextTokenChances(std::span<const float> logits,
                                          const SamplingOptions& options);

class Sampler {
 public:
  // Samples of one seed are independent of each other and of how many there are.
  Sampler(const SamplingOptions& options, int64_t seed, int64_t sample = 0);
  int32_t Next(std::span<const float> logits);

 private:
  double NextUniform();  // in [0, 1)

  SamplingOptions options_;
  uint64_t stream_;
  uint64_t drawn_ = 0;
};

}  // namespace gt
