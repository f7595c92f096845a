#include "gt/torch_bridge/own_stream.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "gt/torch_bridge/device.h"

namespace gt {
namespace {

// More than libtorch's pool has.
TEST(OwnStream, IsOneOwnersAloneAndThenTheNextOnes_gpu) {
  const c10::Device gpu = ChooseDevice(DeviceChoice::kCuda);
  std::set<c10::StreamId> taken;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<OwnStream>> owned;
    for (int i = 0; i < 40; ++i) {
      owned.push_back(std::make_unique<OwnStream>(gpu, /*high_priority=*/i % 2 == 1));
    }
    std::set<c10::StreamId> distinct;
    for (const auto& stream : owned) distinct.insert((*stream)->id());
    EXPECT_EQ(distinct.size(), owned.size());
    taken.merge(distinct);
  }
  EXPECT_EQ(taken.size(), 40);
}

TEST(OwnStream, RunsKernelsInTheirOrder_gpu) {
  const c10::Device gpu = ChooseDevice(DeviceChoice::kCuda);
  OwnStream stream(gpu, /*high_priority=*/true);
  const c10::StreamGuard guard(*stream);
  at::Tensor sum = at::zeros({1 << 20}, at::TensorOptions(gpu));
  for (int i = 0; i < 100; ++i) sum = sum + 1;
  EXPECT_TRUE(at::equal(sum.cpu(), at::full({1 << 20}, 100.0)));
}

}  // namespace
}  // namespace gt
