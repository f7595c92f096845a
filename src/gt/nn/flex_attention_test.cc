// Attention with a score and a mask function against all scores written out, in float64.
#include "gt/nn/flex_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "gt/torch_bridge/one_thread_test_util.h"

namespace gt::flex_attention_test {
namespace {

class FlexAttention : public ::testing::Test {
  testing::OneThread one_thread_;
};

struct FlexCase {
  const char* name;
  nn::FlexFunctions functions;
  std::vector<at::Tensor> captures;
  // The same for whole tensors: scores [batch, heads, queries, keys] and positions that broadcast
  // against them.
  std::function<at::Tensor(const at::Tensor& score, const at::Tensor& head,
                           const at::Tensor& distance)>
      score;
  std::function<at::Tensor(const at::Tensor& batch, const at::Tensor& query, const at::Tensor& key)>
      mask;
};

constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2;

// Longer than a block of keys and no multiple of one, nor of a block of queries.
constexpr int64_t kLong = 700;

// Scores fall with the distance, by a slope of each head that is captured.
at::Tensor Falling(const nn::ScorePoint& point) {
  return point.score - point.Lookup(0, {point.head}) * (point.query - point.key);
}

at::Tensor InWindow(const at::Tensor& query, const at::Tensor& key) {
  return at::logical_and(at::ge(query - key, 0), at::lt(query - key, 80));
}

// Whole blocks of queries, and single ones inside of others.
at::Tensor Sees(const at::Tensor& query) {
  at::Tensor block = at::logical_or(at::lt(query, 256), at::ge(query, 384));
  return at::logical_and(block, at::ne(query.remainder(97), 3));
}

std::vector<FlexCase> FlexCases() {
  auto as_it_is = [](const at::Tensor& score, const at::Tensor&, const at::Tensor&) {
    return score;
  };
  auto everything = [](const at::Tensor&, const at::Tensor& query, const at::Tensor& key) {
    return at::ge(query - key, -kLong);
  };
  at::Tensor slopes = at::exp2(at::arange(1, kHeads + 1, at::kFloat) * -2.0);
  auto alibi = [slopes](const at::Tensor& score, const at::Tensor& head,
                        const at::Tensor& distance) {
    return score - slopes.to(at::kDouble).index({head}) * distance;
  };
  at::Tensor documents =
      at::stack({at::arange(kLong).div(333, "floor"), at::arange(kLong).div(50, "floor")})
          .to(at::kInt);
  at::Tensor positions =
      at::stack({at::arange(kLong).remainder(333), at::arange(kLong).remainder(50)}).to(at::kInt);
  std::vector<FlexCase> cases;
  cases.push_back({"nothing", {}, {}, as_it_is, everything});
  cases.push_back({"causal",
                   nn::CausalFunctions(),
                   {},
                   as_it_is,
                   [](const at::Tensor&, const at::Tensor& query, const at::Tensor& key) {
                     return at::ge(query, key);
                   }});
  cases.push_back(
      {"documents",
       nn::DocumentFunctions(),
       {documents},
       as_it_is,
       [documents](const at::Tensor& batch, const at::Tensor& query, const at::Tensor& key) {
         at::Tensor same = at::eq(documents.index({batch, query}), documents.index({batch, key}));
         return at::logical_and(at::ge(query, key), same);
       }});
  cases.push_back(
      {"alibi_window",
       {.score = Falling,
        .mask = [](const nn::PairPoint& point) { return InWindow(point.query, point.key); },
        .captures = {{at::kFloat, 1}}},
       {slopes},
       alibi,
       [](const at::Tensor&, const at::Tensor& query, const at::Tensor& key) {
         return InWindow(query, key);
       }});
  cases.push_back(
      {"alibi_window_in_documents",
       {.score = Falling,
        // A token's position is the number of tokens of its document that stand before it.
        .mask =
            [](const nn::PairPoint& point) {
              at::Tensor position = point.Lookup(1, {point.batch, point.query});
              return at::logical_and(InWindow(point.query, point.key),
                                     at::le(point.query - point.key, position));
            },
        .captures = {{at::kFloat, 1}, {at::kInt, 2}}},
       {slopes, positions},
       alibi,
       [documents](const at::Tensor& batch, const at::Tensor& query, const at::Tensor& key) {
         at::Tensor same = at::eq(documents.index({batch, query}), documents.index({batch, key}));
         return at::logical_and(InWindow(query, key), same);
       }});
  // The slope of the score function depends on the score, and some queries see nothing at all.
  cases.push_back(
      {"soft_cap_and_blind_rows",
       {.score = [](const nn::ScorePoint& point) { return at::tanh(point.score / 2) * 2; },
        .mask =
            [](const nn::PairPoint& point) {
              return at::logical_and(Sees(point.query), at::ge(point.query, point.key));
            }},
       {},
       [](const at::Tensor& score, const at::Tensor&, const at::Tensor&) {
         return at::tanh(score / 2) * 2;
       },
       [](const at::Tensor&, const at::Tensor& query, const at::Tensor& key) {
         return at::logical_and(Sees(query), at::ge(query, key));
       }});
  return cases;
}

struct Attended {
  at::Tensor out;
  std::vector<at::Tensor> gradients;  // of query, key, value
};

template <typename Attend>
Attended WithGradients(std::vector<at::Tensor> inputs, const at::Tensor& slope, Attend attend) {
  for (at::Tensor& input : inputs) input = input.detach().to(slope.scalar_type()).requires_grad_();
  at::Tensor out = attend(inputs[0], inputs[1], inputs[2]);
  return {out.detach(), torch::autograd::grad({out}, inputs, {slope})};
}

at::Tensor WrittenOut(const FlexCase& c, const at::Tensor& query, const at::Tensor& key,
                      const at::Tensor& value, double scale) {
  auto positions = [](int64_t count, std::vector<int64_t> shape) {
    return at::arange(count).view(shape);
  };
  at::Tensor batch = positions(query.size(0), {-1, 1, 1, 1});
  at::Tensor head = positions(query.size(1), {1, -1, 1, 1});
  at::Tensor from = positions(query.size(2), {1, 1, -1, 1});
  at::Tensor to = positions(key.size(2), {1, 1, 1, -1});
  int64_t group = query.size(1) / key.size(1);
  at::Tensor scores = (query * scale).matmul(key.repeat_interleave(group, 1).mT());
  scores = c.score(scores, head, from - to);
  at::Tensor allowed = c.mask(batch, from, to).expand_as(scores);
  // Not minus infinity: a row without any pair would become NaN, and so would its gradient.
  at::Tensor weights = at::softmax(scores.masked_fill(allowed.logical_not(), -1e30), -1);
  return (weights * allowed).matmul(value.repeat_interleave(group, 1));
}

TEST_F(FlexAttention, EqualsAllScoresWrittenOut) {
  at::manual_seed(1);
  constexpr int64_t kWidth = 16, kValueWidth = 12;
  std::vector<at::Tensor> inputs = {at::randn({kBatch, kHeads, kLong, kWidth}),
                                    at::randn({kBatch, kKvHeads, kLong, kWidth}),
                                    at::randn({kBatch, kKvHeads, kLong, kValueWidth})};
  at::Tensor slope = at::randn({kBatch, kHeads, kLong, kValueWidth});
  for (const FlexCase& c : FlexCases()) {
    SCOPED_TRACE(c.name);
    nn::FlexAttention flex(c.functions);
    Attended actual = WithGradients(inputs, slope, [&](auto& query, auto& key, auto& value) {
      return flex(query, key, value, 0.25, c.captures);
    });
    Attended expected =
        WithGradients(inputs, slope.to(at::kDouble), [&](auto& query, auto& key, auto& value) {
          return WrittenOut(c, query, key, value, 0.25);
        });
    auto difference = [](const at::Tensor& a, const at::Tensor& b) {
      return (a.to(at::kDouble) - b).abs().max().item<double>();
    };
    EXPECT_LT(difference(actual.out, expected.out), 1e-5);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_LT(difference(actual.gradients[i], expected.gradients[i]), 1e-4) << "input " << i;
    }
  }
}

TEST_F(FlexAttention, QueriesThatSeeNothingGiveZeros) {
  at::manual_seed(2);
  nn::FlexAttention flex({.mask = [](const nn::PairPoint& point) { return Sees(point.query); }});
  std::vector<at::Tensor> inputs;
  for (int64_t i = 0; i < 3; ++i) inputs.push_back(at::randn({1, 2, kLong, 8}));
  Attended attended = WithGradients(
      inputs, at::ones({1, 2, kLong, 8}),
      [&](auto& query, auto& key, auto& value) { return flex(query, key, value, 0.3); });
  at::Tensor blind = Sees(at::arange(kLong)).logical_not().nonzero().flatten();
  EXPECT_GT(blind.numel(), 128);
  EXPECT_TRUE(attended.out.index_select(2, blind).eq(0).all().item<bool>());
  EXPECT_TRUE(attended.gradients[0].index_select(2, blind).eq(0).all().item<bool>());
  for (const at::Tensor& gradient : attended.gradients) {
    EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  }
}

}  // namespace
}  // namespace gt::flex_attention_test
