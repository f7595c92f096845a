#include "gt/nn/key_value_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gt/nn/module.h"

namespace gt::nn::key_value_cache_test {
namespace {

// What belongs to position p of row r has the value 1000 * r + p.
at::Tensor ValuesAt(const at::Tensor& positions, int64_t rows) {
  at::Tensor row = at::arange(rows).unsqueeze(1);
  return (row * 1000 + positions).to(at::kFloat).view({rows, -1, 1, 1}).expand({-1, -1, 2, 3});
}

TEST(KeyValueCache, SlotsArePositionsOfEachRow) {
  Module first, second;
  KeyValueCache cache(at::kCPU);
  at::Tensor positions = cache.BeginPass(std::vector<int64_t>{0, 0}, 3);
  EXPECT_TRUE(cache.first_pass());
  at::Tensor kept = cache.Extend(first, "key", ValuesAt(positions, 2));
  EXPECT_EQ(kept.sizes(), (at::IntArrayRef{2, 2, 3, 3}));
  cache.Extend(second, "key", -ValuesAt(positions, 2));
  cache.Extend(first, "value", ValuesAt(positions, 2) * 2);

  // Row 0 had three tokens, row 1 one and two of padding, which its own second token replaces.
  positions = cache.BeginPass(std::vector<int64_t>{3, 1}, 1);
  EXPECT_FALSE(cache.first_pass());
  EXPECT_TRUE(positions.equal(at::tensor({3, 1}).view({2, 1})));
  kept = cache.Extend(first, "key", ValuesAt(positions, 2) + 0.5);
  EXPECT_TRUE(kept.select(1, 1).select(2, 0).equal(
      at::tensor({0.0f, 1.0f, 2.0f, 3.5f, 1000.0f, 1001.5f, 1002.0f, 0.0f}).view({2, 4})));
  EXPECT_TRUE(cache.visible().view({2, 4}).equal(
      at::tensor({1, 1, 1, 1, 1, 1, 0, 0}).to(at::kBool).view({2, 4})));
  // Modules and parts are kept apart.
  kept = cache.Extend(second, "key", ValuesAt(positions, 2));
  EXPECT_EQ(kept[0][0][2][0].item<float>(), -2.0f);
  kept = cache.Extend(first, "value", ValuesAt(positions, 2));
  EXPECT_EQ(kept[0][0][2][0].item<float>(), 4.0f);
}

TEST(KeyValueCache, RowsAtOnePositionNeedNoMask) {
  KeyValueCache cache(at::kCPU);
  cache.BeginPass(std::vector<int64_t>{0, 0}, 4);
  cache.BeginPass(std::vector<int64_t>{4, 4}, 1);
  EXPECT_FALSE(cache.visible().defined());
  // Several tokens do: the first of them must not see the second.
  cache.BeginPass(std::vector<int64_t>{5, 5}, 2);
  EXPECT_TRUE(cache.visible()[0][0].equal(
      at::tensor({1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1}).to(at::kBool).view({2, 7})));
}

TEST(KeyValueCache, GrowsAndLetsRowsGo) {
  Module owner;
  KeyValueCache cache(at::kCPU);
  at::Tensor positions = cache.BeginPass(std::vector<int64_t>{0, 0, 0}, 60), kept;
  cache.Extend(owner, "key", ValuesAt(positions, 3));
  for (int64_t position = 60; position < 200; ++position) {
    positions = cache.BeginPass(std::vector<int64_t>(3, position), 1);
    kept = cache.Extend(owner, "key", ValuesAt(positions, 3));
  }
  at::Tensor all = at::arange(200).unsqueeze(0);
  EXPECT_TRUE(kept.equal(ValuesAt(all, 3).transpose(1, 2)));
  cache.KeepRows(at::tensor({2, 0}, at::kLong));
  positions = cache.BeginPass(std::vector<int64_t>{200, 200}, 1);
  kept = cache.Extend(owner, "key", at::zeros({2, 1, 2, 3}));
  EXPECT_EQ(kept[0][1][7][2].item<float>(), 2007.0f);
  EXPECT_EQ(kept[1][1][199][0].item<float>(), 199.0f);
}

}  // namespace
}  // namespace gt::nn::key_value_cache_test
