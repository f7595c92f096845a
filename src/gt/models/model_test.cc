#include "gt/models/model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "gt/base/error.h"

namespace gt {
namespace {

TEST(Models, FlavorsHaveTheirPublishedSizes) {
  auto count = [](const std::string& flavor) {
    return nn::ParameterCount(*BuildModel("llama3", flavor, {.max_length = 16}));
  };
  EXPECT_EQ(count("debugmodel"), 6'163'712);
  EXPECT_EQ(count("8B"), 8'030'261'248);
  EXPECT_EQ(count("70B"), 70'553'706'496);
  EXPECT_EQ(count("405B"), 405'853'388'800);
}

TEST(Models, BuildingAllocatesNoWeights) {
  auto model = BuildModel("llama3", "405B", {.max_length = 16});
  for (const at::Tensor& parameter : model->parameters()) EXPECT_TRUE(parameter.is_meta());
}

TEST(Models, WeightsDependOnSeedAndNameAlone) {
  auto a = BuildModel("llama3", "tiny", {.max_length = 16}),
       b = BuildModel("llama3", "tiny", {.max_length = 32});
  nn::Materialize(*a, at::kCPU, 7);
  nn::Materialize(*b, at::kCPU, 7);
  auto left = a->named_parameters(), right = b->named_parameters();
  for (const auto& item : left) EXPECT_TRUE(item.value().equal(right[item.key()])) << item.key();
  nn::Materialize(*b, at::kCPU, 8);
  EXPECT_FALSE(left["output.weight"].equal(b->named_parameters()["output.weight"]));
  EXPECT_FALSE(
      left["layers.0.feed_forward.w1.weight"].equal(left["layers.1.feed_forward.w1.weight"]));
}

TEST(Models, UnknownNamesSuggestTheNearest) {
  for (auto [name, flavor, expected] :
       {std::tuple{"lama3", "8B", "llama3"}, std::tuple{"llama3", "80B", "8B"}}) {
    try {
      BuildModel(name, flavor, {.max_length = 16});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnknownModel);
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace gt
