#include "gt/base/machine_memory.h"

#include <gtest/gtest.h>

namespace gt {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20, kGibibyte = int64_t{1} << 30;

TEST(MachineMemoryTest, SomeIsLeftForTheRestOfTheMachine) {
  EXPECT_EQ(UsableMemory(0), 0);
  EXPECT_EQ(UsableMemory(100 * kMebibyte), 0);
  EXPECT_EQ(UsableMemory(2 * kGibibyte), 2 * kGibibyte - 512 * kMebibyte);
  EXPECT_EQ(UsableMemory(100 * kGibibyte), 92 * kGibibyte);
}

TEST(MachineMemoryTest, AvailableIsNoMoreThanThereIs) {
  EXPECT_GT(AvailableMemory(), 0);
  EXPECT_LE(AvailableMemory(), TotalMemory());
  EXPECT_GT(PeakResidentMemory(), 0);
}

}  // namespace
}  // namespace gt
