#include "gt/base/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

namespace gt::arena_test {
namespace {

// Allocations of all sizes are aligned and do not overlap.
TEST(Arena, GivesMemoryOfItsOwnToEach) {
  Arena arena;
  std::vector<std::pair<unsigned char*, size_t>> given;
  for (size_t bytes = 1; bytes < 5000; bytes += 37) {
    auto* memory = static_cast<unsigned char*>(arena.Allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % alignof(std::max_align_t), 0u);
    std::memset(memory, static_cast<int>(given.size() % 251), bytes);
    given.emplace_back(memory, bytes);
  }
  for (size_t i = 0; i < given.size(); ++i) {
    for (size_t k = 0; k < given[i].second; ++k) ASSERT_EQ(given[i].first[k], i % 251);
  }
  for (const auto& [memory, bytes] : given) arena.Free(memory, bytes);
}

// Freed memory is reused for the same size, so that passes that replace nodes do not
// make the graph grow.
TEST(Arena, ReusesWhatWasFreed) {
  Arena arena;
  std::set<void*> first;
  for (int i = 0; i < 100; ++i) first.insert(arena.Allocate(200));
  for (void* memory : first) arena.Free(memory, 200);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(first.contains(arena.Allocate(200)));
  EXPECT_FALSE(first.contains(arena.Allocate(200)));
}

}  // namespace
}  // namespace gt::arena_test
