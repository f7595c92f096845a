#include "gt/data/permutation.h"

#include <algorithm>
#include <bit>

#include "gt/base/error.h"

namespace gt {

Permutation::Permutation(int64_t size, uint64_t seed) : size_(static_cast<uint64_t>(size)) {
  GT_CHECK(size >= 0, "a permutation of {} things", size);
  // Two halves of at least 4 bits: with fewer there are too few round functions for small sizes to
  // reach every order.
  const int bits = size == 0 ? 0 : std::bit_width(size_ - 1);
  half_bits_ = std::max(4, (bits + 1) / 2);
  for (int round = 0; round < kRounds; ++round) {
    keys_[round] = CombineSeeds(seed, static_cast<uint64_t>(round));
  }
}

// A Feistel network: a bijection of the numbers of 2 * half_bits_ bits, whatever the keys.
uint64_t Permutation::Scramble(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t mixed = left ^ (MixBits(right ^ key) & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t index) const {
  GT_CHECK(index >= 0 && static_cast<uint64_t>(index) < size_, "index {} of {}", index, size_);
  // Following the bijection until it comes back below `size` is a bijection of [0, size): the walk
  // stays on one cycle, and it ends since the start itself is below. The domain is less than four
  // times `size`, so the walk is short.
  uint64_t value = static_cast<uint64_t>(index);
  do {
    value = Scramble(value);
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

}  // namespace gt
