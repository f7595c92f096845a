#include "gt/torch_bridge/cpu_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

namespace gt::cpu_memory_test {
namespace {

TEST(CpuMemory, CountsTensorsAndTheirPeak) {
  MeterScope scope;
  MemoryMeter& meter = CurrentMeter();
  at::Tensor kept = at::zeros({1000}, at::kFloat);
  EXPECT_EQ(meter.current(), 4000);
  {
    at::Tensor view = kept.narrow(0, 0, 10), other = at::empty({500}, at::kDouble);
    EXPECT_EQ(meter.current(), 8000);
  }
  EXPECT_EQ(meter.current(), 4000);
  EXPECT_EQ(meter.peak(), 8000);
  meter.ResetPeak();
  EXPECT_EQ(meter.peak(), 4000);
}

TEST(CpuMemory, EachThreadCountsItsOwn) {
  MeterScope scope;
  at::Tensor handed_over;
  std::thread other([&] {
    MeterScope own;
    handed_over = at::empty({100}, at::kByte);
    EXPECT_EQ(CurrentMeter().current(), 100);
  });
  other.join();
  EXPECT_EQ(CurrentMeter().current(), 0);
  handed_over.reset();  // frees on a meter whose scope is gone
  EXPECT_EQ(CurrentMeter().current(), 0);
}

TEST(CpuMemory, ALimitHoldsAndLeavesTheCountRight) {
  MeterScope scope;
  MemoryMeter& meter = CurrentMeter();
  meter.Limit(1000);
  at::Tensor half = at::empty({500}, at::kByte);
  EXPECT_THROW(at::empty({501}, at::kByte), c10::OutOfMemoryError);
  EXPECT_EQ(meter.current(), 500);
  EXPECT_EQ(at::empty({500}, at::kByte).numel(), 500);
  meter.Limit(0);
  EXPECT_EQ(at::empty({100000}, at::kByte).numel(), 100000);
}

TEST(CpuMemory, EmptyTensorsAndGrowingOnesAreFine) {
  MeterScope scope;
  at::Tensor grows = at::empty({0}, at::kFloat);
  EXPECT_EQ(CurrentMeter().current(), 0);
  grows.resize_({16}).fill_(3);
  EXPECT_EQ(grows.sum().item<float>(), 48);
  EXPECT_EQ(CurrentMeter().current(), 64);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(grows.const_data_ptr()) % 64, 0u);
}

}  // namespace
}  // namespace gt::cpu_memory_test
