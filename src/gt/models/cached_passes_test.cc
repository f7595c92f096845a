// A model that remembers what it has seen gives the logits of one that sees everything in one pass:
// for every family, kind of attention and way of cutting sequences into passes, and for rows of
// different lengths side by side.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "gt/models/hf_checkpoint.h"
#include "gt/models/model.h"
#include "gt/nn/key_value_cache.h"
#include "gt/torch_bridge/device.h"

namespace gt::cached_passes_test {
namespace {

constexpr AttentionBackend kSdpa = AttentionBackend::kSdpa, kFlex = AttentionBackend::kFlex;

struct CachedCase {
  const char* name;
  const char* model;
  const char* flavor;
  AttentionBackend backend = kSdpa;
  AttentionMask mask = AttentionMask::kCausal;
};
std::ostream& operator<<(std::ostream& out, const CachedCase& c) { return out << c.name; }

const CachedCase kCachedCases[] = {
    {"llama3", "llama3", "tiny"},
    {"llama3_flex", "llama3", "tiny", kFlex},
    {"llama3_documents", "llama3", "tiny", kFlex, AttentionMask::kBlockCausal},
    {"qwen3", "qwen3", "tiny"},
    {"qwen3_flex", "qwen3", "tiny", kFlex},
    {"qwen3_moe", "qwen3", "tiny_moe"},
    {"qwen3_moe_flex", "qwen3", "tiny_moe", kFlex},
    {"deepseek_v3", "deepseek_v3", "tiny"},
    {"deepseek_v3_flex", "deepseek_v3", "tiny", kFlex},
};

// Passes of random lengths, of which the first is given; together `length` tokens.
std::vector<int64_t> RandomPasses(int64_t first, int64_t length, std::mt19937& random) {
  std::vector<int64_t> passes = {first};
  for (int64_t left = length - first; left > 0; left -= passes.back()) {
    passes.push_back(std::min<int64_t>(left, 1 + static_cast<int64_t>(random() % 4)));
  }
  return passes;
}

class ModelWithCache : public ::testing::Test {
 protected:
  void Build(const CachedCase& c, at::Device device, at::ScalarType dtype = at::kFloat) {
    ModelOptions options{.max_length = 160, .attention = {c.backend, c.mask}};
    model_ = BuildModel(c.model, c.flavor, options);
    nn::Materialize(*model_, device, /*seed=*/11, dtype);
    model_->eval();
    device_ = device;
  }

  at::Tensor RandomTokens(int64_t rows, int64_t length) {
    at::manual_seed(5);
    return at::randint(model_->vocab_size(), {rows, length}, at::kLong).to(device_);
  }

  // In one pass without a cache.
  at::Tensor Whole(const at::Tensor& tokens) {
    at::Tensor positions = at::arange(tokens.size(1), tokens.options()).expand_as(tokens);
    return model_->Logits({tokens, positions.contiguous()});
  }

  at::Tensor InPasses(const at::Tensor& tokens, const std::vector<int64_t>& passes) {
    nn::KeyValueCache cache(device_);
    std::vector<at::Tensor> logits;
    int64_t seen = 0;
    for (int64_t count : passes) {
      std::vector<int64_t> starts(static_cast<size_t>(tokens.size(0)), seen);
      at::Tensor positions = cache.BeginPass(starts, count);
      logits.push_back(model_->Logits({tokens.narrow(1, seen, count), positions, &cache}));
      seen += count;
    }
    return at::cat(logits, 1);
  }

  static double Distance(const at::Tensor& a, const at::Tensor& b) {
    return (a.to(at::kFloat) - b.to(at::kFloat)).abs().max().item<double>();
  }

  // Rows of different lengths: a padded first pass, then one token of each, and now and then a row
  // leaves. The largest difference to the logits that each row has on its own.
  double BatchDistance(const std::vector<int64_t>& lengths, int64_t steps) {
    int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    at::Tensor tokens = RandomTokens(static_cast<int64_t>(lengths.size()), longest + steps);
    nn::KeyValueCache cache(device_);
    at::Tensor positions = cache.BeginPass(std::vector<int64_t>(lengths.size(), 0), longest);
    at::Tensor logits = model_->Logits({tokens.narrow(1, 0, longest), positions, &cache});
    struct Row {
      at::Tensor tokens, expected;
      int64_t length;
    };
    std::vector<Row> rows;
    double distance = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      auto row = static_cast<int64_t>(i);
      at::Tensor own = tokens[row].narrow(0, 0, lengths[i] + steps);
      rows.push_back({own, Whole(own.unsqueeze(0))[0], lengths[i]});
      distance = std::max(distance, Distance(logits[row].narrow(0, 0, lengths[i]),
                                             rows.back().expected.narrow(0, 0, lengths[i])));
    }
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<int64_t> starts;
      std::vector<at::Tensor> next, expected;
      for (Row& row : rows) {
        starts.push_back(row.length + step);
        next.push_back(row.tokens.narrow(0, row.length + step, 1));
        expected.push_back(row.expected.narrow(0, row.length + step, 1));
      }
      positions = cache.BeginPass(starts, 1);
      logits = model_->Logits({at::stack(next), positions, &cache});
      distance = std::max(distance, Distance(logits, at::stack(expected)));
      if (step % 3 != 2 || rows.size() == 1) continue;
      // The first row leaves, and the others change places.
      std::reverse(rows.begin(), rows.end());
      rows.pop_back();
      auto count = static_cast<int64_t>(rows.size());
      cache.KeepRows(at::arange(count, 0, -1, at::kLong));
    }
    return distance;
  }

  ModelPtr model_;
  at::Device device_ = at::kCPU;
};

class CachedPasses : public ModelWithCache, public ::testing::WithParamInterface<CachedCase> {};

// Beyond the cache's first capacity, so that it grows on the way.
TEST_P(CachedPasses, GiveTheLogitsOfOnePass) {
  Build(GetParam(), at::kCPU);
  at::NoGradGuard no_gradients;
  at::Tensor tokens = RandomTokens(3, 141);
  at::Tensor expected = Whole(tokens);
  std::mt19937 random(3);
  for (int64_t first : {1, 7, 130}) {
    at::Tensor logits = InPasses(tokens, RandomPasses(first, 141, random));
    EXPECT_LT(Distance(logits, expected), 2e-5) << first;
    EXPECT_TRUE(logits.argmax(-1).equal(expected.argmax(-1))) << first;
  }
}

TEST_P(CachedPasses, RowsDoNotDependOnTheirNeighbours) {
  Build(GetParam(), at::kCPU);
  at::NoGradGuard no_gradients;
  EXPECT_LT(BatchDistance({5, 1, 66, 13}, 11), 2e-5);
  EXPECT_LT(BatchDistance({9, 9}, 4), 2e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, CachedPasses, ::testing::ValuesIn(kCachedCases),
                         [](const auto& info) { return info.param.name; });

// bfloat16 keeps 8 bits, of logits that are about 1.
TEST_F(ModelWithCache, AgreesOnAGpu_gpu) {
  if (!CudaUsable()) GTEST_SKIP() << "there is no GPU";
  at::NoGradGuard no_gradients;
  std::mt19937 random(3);
  for (const CachedCase& c : kCachedCases) {
    for (auto [dtype, limit] : {std::pair(at::kFloat, 1e-3), std::pair(at::kBFloat16, 0.1)}) {
      SCOPED_TRACE(std::string(c.name) + " " + at::toString(dtype));
      Build(c, at::Device(at::kCUDA, 0), dtype);
      at::Tensor tokens = RandomTokens(3, 141);
      EXPECT_LT(Distance(InPasses(tokens, RandomPasses(7, 141, random)), Whole(tokens)), limit);
      EXPECT_LT(BatchDistance({5, 1, 66, 13}, 11), limit);
    }
  }
}

// Without a cache in its inputs a model is the one that trains.
TEST(UsesCache, EveryFamily) {
  for (const ModelFamily& family : ModelFamilies()) {
    if (family.name == "alibi_window")
      continue;  // of added_model_test.cc, which has no use for one
    EXPECT_TRUE(BuildModel(family.name, family.flavors[0], {})->UsesCache()) << family.name;
  }
}

// Hugging Face's losses of every token, from one pass over the first tokens and one for each other.
TEST(CachedParity, LossOfEveryToken) {
  const std::filesystem::path fixtures = std::filesystem::path(GT_SOURCE_DIR) / "tests" / "parity";
  for (const char* name :
       {"llama", "qwen3", "qwen3_moe", "deepseek_v3", "deepseek_v3_bias", "deepseek_v3_full"}) {
    std::string folder = (fixtures / name).string();
    std::ifstream file(folder + "/reference.json");
    nlohmann::json reference = nlohmann::json::parse(file);
    auto rows = static_cast<int64_t>(reference["input_ids"].size());
    auto table = [&](const char* key, at::ScalarType dtype) {
      std::vector<double> numbers;
      for (const auto& row : reference[key]) {
        for (const auto& number : row) numbers.push_back(number.get<double>());
      }
      return at::tensor(numbers, at::kDouble).view({rows, -1}).to(dtype);
    };
    at::Tensor tokens = table("input_ids", at::kLong), labels = table("labels", at::kLong);
    ModelPtr model = BuildModelFromHf(folder, {.max_length = tokens.size(1)});
    nn::Allocate(*model, at::kCPU);
    LoadHfWeights(*model, folder);
    model->eval();
    at::NoGradGuard no_gradients;
    nn::KeyValueCache cache(at::kCPU);
    std::vector<at::Tensor> logits;
    for (int64_t seen = 0, count = 5; seen < tokens.size(1); seen += count, count = 1) {
      std::vector<int64_t> starts(static_cast<size_t>(rows), seen);
      at::Tensor positions = cache.BeginPass(starts, count);
      logits.push_back(model->Logits({tokens.narrow(1, seen, count), positions, &cache}));
    }
    at::Tensor losses = at::cross_entropy_loss(at::cat(logits, 1).flatten(0, 1).to(at::kDouble),
                                               labels.flatten(), {}, at::Reduction::None);
    at::Tensor expected = table("per_token_loss_fp64", at::kDouble).flatten();
    EXPECT_LT((losses - expected).abs().max().item<double>(), 1e-4) << name;
  }
}

}  // namespace
}  // namespace gt::cached_passes_test
