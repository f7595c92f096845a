// Orders of experts against a plain loop: of libtorch's operators, of the kernels' text on the host, and of the
// kernels on a GPU.
#include "gt/kernels/expert_order.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gt/fusion/order_kernels.h"
#include "gt/kernels/kernel_table.h"
#include "gt/testing/host_kernels.h"
#include "gt/torch_bridge/device.h"

namespace gt::expert_order_test {
namespace {

using at::Tensor;
using Ordered = std::tuple<Tensor, Tensor, Tensor>;

Ordered Expected(const Tensor& experts, int64_t count) {
  const Tensor flat = experts.cpu().contiguous().view({-1});
  const int64_t* numbers = flat.const_data_ptr<int64_t>();
  std::vector<int64_t> to_slots, to_rows(static_cast<size_t>(flat.numel())), counts;
  for (int64_t e = 0; e < count; ++e) {
    const size_t before = to_slots.size();
    for (int64_t i = 0; i < flat.numel(); ++i) {
      if (numbers[i] != e) continue;
      to_rows[static_cast<size_t>(i)] = static_cast<int64_t>(to_slots.size());
      to_slots.push_back(i);
    }
    counts.push_back(static_cast<int64_t>(to_slots.size() - before));
  }
  return {at::tensor(to_slots, at::kLong), at::tensor(to_rows, at::kLong),
          at::tensor(counts, at::kLong)};
}

void ExpectOrder(const Ordered& actual, const Tensor& experts, int64_t count) {
  const Ordered expected = Expected(experts, count);
  EXPECT_TRUE(at::equal(std::get<0>(actual).cpu(), std::get<0>(expected))) << "to_slots";
  EXPECT_TRUE(at::equal(std::get<1>(actual).cpu(), std::get<1>(expected))) << "to_rows";
  EXPECT_TRUE(at::equal(std::get<2>(actual).cpu(), std::get<2>(expected))) << "counts";
}

constexpr int64_t kExperts[] = {1, 7, 64, 256, 512};

class ExpertOrders : public ::testing::Test {
 protected:
  // Evenly spread, all of one expert, few experts, and in order.
  std::vector<Tensor> Numbers(int64_t tokens, int64_t k, int64_t count) {
    const Tensor any = at::randint(count, {tokens, k}, generator_, at::kLong);
    const Tensor few = at::randint(count, {tokens, k}, generator_, at::kLong) / 3 * 3;
    return {any.to(device_), at::full({tokens, k}, count - 1, at::kLong).to(device_),
            few.remainder(count).to(at::kLong).to(device_),
            (at::arange(tokens * k, at::kLong) * count / (tokens * k))
                .to(at::kLong)
                .view({tokens, k})
                .to(device_)};
  }
  void CheckOperator(std::initializer_list<std::pair<int64_t, int64_t>> sizes) {
    for (int64_t count : kExperts) {
      for (const auto& [tokens, k] : sizes) {
        SCOPED_TRACE(fmt::format("{} x {} of {}", tokens, k, count));
        for (const Tensor& numbers : Numbers(tokens, k, count)) {
          ExpectOrder(ExpertOrder(numbers, count), numbers, count);
        }
        // Not in the order of memory.
        const Tensor turned = Numbers(k, tokens, count)[0].t();
        ExpectOrder(ExpertOrder(turned, count), turned, count);
      }
    }
  }

  c10::Device device_{c10::kCPU};
  at::Generator generator_ = at::globalContext().defaultGenerator(c10::kCPU).clone();
};

TEST_F(ExpertOrders, AreThoseOfAPlainLoop) { CheckOperator({{1, 1}, {50, 3}, {200, 6}}); }

TEST_F(ExpertOrders, OfTheKernelsText) {
  if (!testing::HasHostCompiler()) GTEST_SKIP() << "there is no compiler here";
  std::vector<fusion::RowKernel> sources;
  for (int64_t count : kExperts) {
    sources.push_back(fusion::ExpertCountSource(count));
    sources.push_back(fusion::ExpertOrderSource(count));
  }
  const testing::HostKernels kernels(sources);
  ASSERT_EQ(kernels.error(), "");
  for (size_t i = 0; i < std::size(kExperts); ++i) {
    const int64_t count = kExperts[i];
    // One number, a part of a block, a block and one more, several blocks.
    for (const auto& [tokens, k] :
         {std::pair<int64_t, int64_t>{1, 1}, {50, 3}, {205, 5}, {700, 6}}) {
      SCOPED_TRACE(fmt::format("{} x {} of {}", tokens, k, count));
      const fusion::OrderShape shape = fusion::OrderShapeFor(tokens * k);
      if (tokens == 700) ASSERT_GT(shape.blocks, 3);
      for (const Tensor& numbers : Numbers(tokens, k, count)) {
        const Tensor partial = at::full({shape.blocks, count}, -1, at::kInt);
        const Tensor to_slots = at::full({tokens * k}, -1, at::kLong), to_rows = to_slots.clone(),
                     counts = at::full({count}, -1, at::kLong);
        const auto total = static_cast<long long>(tokens * k),
                   each = static_cast<long long>(shape.each);
        kernels.Launch(2 * i, shape.blocks, fusion::kOrderThreads, InPointer(numbers),
                       OutPointer(partial), total, each);
        kernels.Launch(2 * i + 1, shape.blocks, fusion::kOrderThreads, InPointer(numbers),
                       InPointer(partial), OutPointer(to_slots), OutPointer(to_rows),
                       OutPointer(counts), total, each, static_cast<int>(shape.blocks));
        ExpectOrder({to_slots, to_rows, counts}, numbers, count);
      }
    }
  }
}

// Every number has a block, and there are never many.
TEST_F(ExpertOrders, BlocksShareTheNumbers) {
  for (int64_t count : {1, 1023, 1024, 1025, 49152, 65536, 65537, 1 << 20, 12345678}) {
    const fusion::OrderShape shape = fusion::OrderShapeFor(count);
    EXPECT_GE(shape.each * shape.blocks, count);
    EXPECT_LT(shape.each * (shape.blocks - 1), count);
    EXPECT_EQ(shape.each % fusion::kOrderThreads, 0);
    EXPECT_LE(shape.blocks, 64);
  }
}

class ExpertOrdersOnGpu : public ExpertOrders {
 protected:
  void SetUp() override {
    if (!CudaUsable()) GTEST_SKIP() << "there is no GPU";
    device_ = c10::Device(c10::kCUDA, 0);
  }
};
TEST_F(ExpertOrdersOnGpu, AreThoseOfAPlainLoop_gpu) {
  CheckOperator({{1, 1}, {50, 3}, {205, 5}, {8192, 6}, {20000, 8}});
}

}  // namespace
}  // namespace gt::expert_order_test
