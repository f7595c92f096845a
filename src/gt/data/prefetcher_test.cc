#include "gt/data/prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace gt::prefetcher_test {
namespace {

TEST(PrefetcherTest, GivesEverythingInOrder) {
  int made = 0;
  Prefetcher<int> prefetcher([&made] { return made++; }, 3);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(prefetcher.Next(), i);
}

TEST(PrefetcherTest, MakesNoMoreThanItsDepthAhead) {
  std::atomic<int> made = 0;
  Prefetcher<int> prefetcher([&made] { return made++; }, 3);
  EXPECT_EQ(prefetcher.Next(), 0);
  while (made < 4) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(made, 4);
}

TEST(PrefetcherTest, ErrorsComeAfterWhatWasMadeBefore) {
  int made = 0;
  Prefetcher<int> prefetcher(
      [&made] {
        if (made == 2) throw std::runtime_error("no more");
        return made++;
      },
      8);
  EXPECT_EQ(prefetcher.Next(), 0);
  EXPECT_EQ(prefetcher.Next(), 1);
  EXPECT_THROW(prefetcher.Next(), std::runtime_error);
  EXPECT_THROW(prefetcher.Next(), std::runtime_error);
}

TEST(PrefetcherTest, CanBeDroppedAtAnyTime) {
  for (int taken = 0; taken < 4; ++taken) {
    Prefetcher<int> prefetcher([] { return 1; }, 2);
    for (int i = 0; i < taken; ++i) prefetcher.Next();
  }
  Prefetcher<int> failing([]() -> int { throw std::runtime_error("at once"); }, 2);
}

}  // namespace
}  // namespace gt::prefetcher_test
