#include "gt/base/pointer_map.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <unordered_map>
#include <vector>

namespace gt::pointer_map_test {
namespace {

// Random insertions and erasures leave what a map of the standard library would hold.
TEST(PointerMap, AgreesWithTheStandardMap) {
  std::vector<int64_t> keys(500);
  std::mt19937 random(7);
  PointerMap<int> map;
  std::unordered_map<const void*, int> expected;
  for (int i = 0; i < 20000; ++i) {
    const void* key = &keys[random() % keys.size()];
    if (random() % 2 == 0) {
      EXPECT_EQ(map.Insert(key, i).second, expected.emplace(key, i).second);
    } else {
      map.Erase(key);
      expected.erase(key);
    }
    ASSERT_EQ(map.size(), expected.size());
    for (const int64_t& other : keys) {
      if (i % 500 != 0) break;
      const int* found = map.Find(&other);
      ASSERT_EQ(found != nullptr, expected.contains(&other));
      if (found != nullptr) EXPECT_EQ(*found, expected.at(&other));
    }
  }
}

TEST(PointerMap, AnEmptyOneHoldsNothing) {
  PointerMap<int> map;
  EXPECT_FALSE(map.contains(&map));
  map.Erase(&map);
  EXPECT_EQ(map.size(), 0u);
}

}  // namespace
}  // namespace gt::pointer_map_test
