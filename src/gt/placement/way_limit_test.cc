#include "gt/placement/way_limit.h"

#include <gtest/gtest.h>

#include <vector>

namespace gt::way_limit_test {
namespace {

using placement::WayLimit;

// All combinations that are looked at, one by one.
size_t CountOf(const WayLimit& limit, size_t ways, int axes, std::vector<size_t> chosen = {}) {
  if (static_cast<int>(chosen.size()) == axes) return 1;
  size_t count = 0;
  for (size_t way = 0; way < ways; ++way) {
    std::vector<size_t> more = chosen;
    more.push_back(way);
    if (limit.Allows(more)) count += CountOf(limit, ways, axes, more);
  }
  return count;
}

TEST(WayLimit, LeavesNothingOutUpToThreeAxes) {
  for (const int axes : {1, 2, 3}) {
    const WayLimit limit(12, axes);
    EXPECT_TRUE(limit.complete());
    EXPECT_TRUE(limit.Allows(std::vector<size_t>{11, 3, 7}));
  }
  EXPECT_TRUE(WayLimit(5, 4).complete());
}

TEST(WayLimit, KeepsWhatCanBeSearchedAlongFour) {
  for (size_t ways = 1; ways <= 10; ++ways) {
    const WayLimit limit(ways, 4);
    EXPECT_LE(CountOf(limit, ways, 4), 650u) << ways;
    // Data along two axes and a model along the other two; everything along all.
    EXPECT_TRUE(limit.Allows(std::vector<size_t>{0, 0, ways - 1, ways - 1})) << ways;
    EXPECT_TRUE(limit.Allows(std::vector<size_t>(4, ways - 1))) << ways;
  }
  EXPECT_FALSE(WayLimit(10, 4).complete());
  EXPECT_FALSE(WayLimit(10, 4).Allows(std::vector<size_t>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace gt::way_limit_test
