// A shuffled order that needs no memory and can be entered anywhere: position i of the order is
// computed, not looked up, so resuming in the middle of an epoch of a billion documents costs
// nothing. Not std::shuffle: its result differs between standard libraries, and the same seed must
// give the same batches on every machine.
#pragma once

#include <array>
#include <cstdint>

namespace gt {

// Mixes all bits of a value (the finalizer of splitmix64).
constexpr uint64_t MixBits(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

constexpr uint64_t CombineSeeds(uint64_t a, uint64_t b) { return MixBits(MixBits(a) ^ b); }

// A bijection of [0, size), drawn by `seed`.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed);

  int64_t operator()(int64_t index) const;

 private:
  static constexpr int kRounds = 6;

  uint64_t Scramble(uint64_t value) const;

  uint64_t size_;
  int half_bits_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace gt
