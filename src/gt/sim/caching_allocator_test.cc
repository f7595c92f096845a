#include "gt/sim/caching_allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gt {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;

int64_t TakenFor(std::initializer_list<int64_t> blocks) {
  CachingAllocator allocator;
  for (int64_t bytes : blocks) allocator.Allocate(bytes);
  return allocator.taken();
}

TEST(CachingAllocator, TakesSegmentsBySizeOfTheBlock) {
  EXPECT_EQ(TakenFor({}), 0);
  EXPECT_EQ(TakenFor({1}), 2 * kMegabyte);
  EXPECT_EQ(TakenFor({kMegabyte, kMegabyte - 1}), 2 * kMegabyte) << "two small blocks share one";
  EXPECT_EQ(TakenFor({kMegabyte, kMegabyte, 1}), 4 * kMegabyte);
  EXPECT_EQ(TakenFor({kMegabyte + 1}), 20 * kMegabyte);
  EXPECT_EQ(TakenFor({9 * kMegabyte, 9 * kMegabyte, kMegabyte + 1}), 20 * kMegabyte)
      << "the rest of the segment is 2 MiB";
  EXPECT_EQ(TakenFor({10 * kMegabyte}), 10 * kMegabyte);
  EXPECT_EQ(TakenFor({10 * kMegabyte + 1}), 12 * kMegabyte);
}

TEST(CachingAllocator, RoundsBlocks) {
  CachingAllocator allocator;
  allocator.Allocate(1);
  EXPECT_EQ(allocator.in_use(), 512);
  allocator.Allocate(513);
  EXPECT_EQ(allocator.in_use(), 512 + 1024);
}

// What is left of a large block is one of its own from 1 MiB on.
TEST(CachingAllocator, LeavesLargeBlocksWholeForALittle) {
  CachingAllocator allocator;
  allocator.Free(allocator.Allocate(12 * kMegabyte));
  const auto whole = allocator.Allocate(11 * kMegabyte);
  EXPECT_EQ(allocator.in_use(), 12 * kMegabyte);
  allocator.Free(whole);
  allocator.Allocate(11 * kMegabyte - 512);
  EXPECT_EQ(allocator.in_use(), 11 * kMegabyte - 512);
  EXPECT_EQ(allocator.taken(), 12 * kMegabyte);
}

TEST(CachingAllocator, HandsOutTheSmallestThatIsLargeEnough) {
  CachingAllocator allocator;
  const auto large = allocator.Allocate(40 * kMegabyte);
  const auto small = allocator.Allocate(30 * kMegabyte);
  allocator.Free(large);
  allocator.Free(small);
  allocator.Allocate(30 * kMegabyte);
  allocator.Allocate(40 * kMegabyte);
  EXPECT_EQ(allocator.taken(), 70 * kMegabyte);
}

TEST(CachingAllocator, NeighborsJoinAndSegmentsDoNot) {
  CachingAllocator allocator;
  allocator.Free(allocator.Allocate(60 * kMegabyte));
  std::vector<CachingAllocator::Handle> thirds(3);
  for (auto& third : thirds) third = allocator.Allocate(20 * kMegabyte);
  EXPECT_EQ(allocator.taken(), 60 * kMegabyte);
  for (int i : {0, 2, 1}) allocator.Free(thirds[static_cast<size_t>(i)]);
  const auto whole = allocator.Allocate(60 * kMegabyte);
  EXPECT_EQ(allocator.taken(), 60 * kMegabyte);
  const auto other = allocator.Allocate(20 * kMegabyte);
  allocator.Free(other);
  allocator.Free(whole);
  allocator.Allocate(80 * kMegabyte);
  EXPECT_EQ(allocator.taken(), 160 * kMegabyte);
}

// Whatever the order, nothing is lost: when all is free, each segment is one block again.
TEST(CachingAllocator, KeepsEverythingInAnyOrder) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(below));
  };
  for (int round = 0; round < 20; ++round) {
    CachingAllocator allocator;
    const int64_t reserve = 256 * kMegabyte;
    allocator.Free(allocator.Allocate(reserve));
    std::vector<CachingAllocator::Handle> used;
    for (int i = 0; i < 2000; ++i) {
      if (used.empty() || draw(100) < 52) {
        used.push_back(allocator.Allocate(1 + draw(draw(4) == 0 ? 24 * kMegabyte : 9000)));
      } else {
        std::swap(used[static_cast<size_t>(draw(static_cast<int64_t>(used.size())))], used.back());
        allocator.Free(used.back());
        used.pop_back();
      }
      ASSERT_LE(allocator.in_use(), allocator.taken());
    }
    for (const auto handle : used) allocator.Free(handle);
    EXPECT_EQ(allocator.in_use(), 0);
    const int64_t taken = allocator.taken();
    allocator.Allocate(reserve);
    EXPECT_EQ(allocator.taken(), taken) << "the first segment is whole again";
  }
}

}  // namespace
}  // namespace gt
