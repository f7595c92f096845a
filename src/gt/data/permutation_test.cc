#include "gt/data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace gt::permutation_test {
namespace {

std::vector<int64_t> All(int64_t size, uint64_t seed) {
  const Permutation permutation(size, seed);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(permutation(i));
  return values;
}

TEST(PermutationTest, IsABijectionOfEverySize) {
  for (const int64_t size : {1, 2, 3, 4, 5, 7, 15, 16, 17, 100, 255, 256, 257, 4096, 10007}) {
    const std::vector<int64_t> values = All(size, 7);
    const std::set<int64_t> distinct(values.begin(), values.end());
    EXPECT_EQ(std::ssize(distinct), size);
    EXPECT_EQ(*distinct.begin(), 0);
    EXPECT_EQ(*distinct.rbegin(), size - 1);
  }
}

// Pinned, because batches must not change from one machine or release to the next.
TEST(PermutationTest, IsTheSameEverywhere) {
  EXPECT_EQ(All(10, 42), (std::vector<int64_t>{2, 5, 9, 4, 8, 6, 1, 0, 3, 7}));
  const Permutation large(1'000'000'000'000, 1);
  EXPECT_EQ(large(0), 629'416'775'540);
  EXPECT_EQ(large(999'999'999'999), 614'870'791'902);
}

TEST(PermutationTest, ReachesEveryOrderAboutEquallyOften) {
  std::vector<int> seen(24);
  constexpr int kTries = 24'000;
  for (int seed = 0; seed < kTries; ++seed) {
    const std::vector<int64_t> v = All(4, seed);
    int rank = 0;  // of the order among all 24
    for (int i = 0; i < 4; ++i) {
      int smaller = 0;
      for (int j = i + 1; j < 4; ++j) smaller += v[j] < v[i];
      rank = rank * (4 - i) + smaller;
    }
    ++seen[rank];
  }
  for (const int count : seen) EXPECT_NEAR(count, kTries / 24, 200);
}

// Neighbours in the order must be far from each other in the data, and nothing may stay in place.
TEST(PermutationTest, MovesThingsFar) {
  constexpr int64_t kSize = 10'000;
  const std::vector<int64_t> values = All(kSize, 3);
  double distance = 0;
  int64_t fixed = 0;
  for (int64_t i = 0; i < kSize; ++i) {
    if (i > 0) distance += std::abs(static_cast<double>(values[i] - values[i - 1]));
    fixed += values[i] == i;
  }
  EXPECT_NEAR(distance / kSize, kSize / 3.0, kSize / 50.0);  // as of independent draws
  EXPECT_LT(fixed, 10);
}

}  // namespace
}  // namespace gt::permutation_test
