// The router against a plain loop over experts in float64 and against autograd. On a CPU these are libtorch's
// operators, on a GPU the kernels, whose text also runs on the host here.
#include "gt/kernels/router.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gt/fusion/router_kernels.h"
#include "gt/kernels/kernel_table.h"
#include "gt/testing/host_kernels.h"
#include "gt/torch_bridge/device.h"

namespace gt::router_test {
namespace {

using at::Tensor;
using Routed = std::tuple<Tensor, Tensor>;

struct Example {
  const char* name;
  int64_t experts;
  bool biased;
  RouterOptions options;
};

// Models of the peers' benchmark, then odd ones.
const Example kExamples[] = {
    {"deepseek_v3 16B", 64, false, {.top_k = 6}},
    {"deepseek_v3 671B",
     256,
     true,
     {.top_k = 8, .sigmoid = true, .groups = 8, .kept_groups = 4, .normalize = true, .scale = 2.5}},
    {"qwen3 30B-A3B", 128, false, {.top_k = 8, .normalize = true}},
    {"odd", 7, true, {.top_k = 3, .normalize = true, .scale = 0.5}},
    {"of one expert", 1, false, {.top_k = 1, .sigmoid = true}},
    {"all experts", 32, false, {.top_k = 32, .normalize = true}},
    {"groups of one", 12, true, {.top_k = 2, .groups = 12, .kept_groups = 5}},
    {"groups of odd size", 45, false, {.top_k = 4, .sigmoid = true, .groups = 5, .kept_groups = 2}},
    {"as many as there can be",
     512,
     true,
     {.top_k = 32, .sigmoid = true, .groups = 32, .kept_groups = 3}},
};

// The order in which experts are taken: NaN, then by size, then by number.
std::vector<int64_t> InOrder(const std::vector<double>& values) {
  std::vector<int64_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const double x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && !std::isnan(y);
    return x > y;
  });
  return order;
}

std::vector<double> Scores(const double* logits, size_t experts, bool sigmoid) {
  std::vector<double> scores(logits, logits + experts);
  if (sigmoid) {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
    return scores;
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  for (double& score : scores) score /= sum;
  return scores;
}

void MaskGroups(std::vector<double>& choice, const RouterOptions& options) {
  const size_t groups = static_cast<size_t>(options.groups), size = choice.size() / groups;
  std::vector<double> sums;
  for (size_t g = 0; g < groups; ++g) {
    std::vector<double> members(choice.begin() + static_cast<int64_t>(g * size),
                                choice.begin() + static_cast<int64_t>((g + 1) * size));
    const std::vector<int64_t> order = InOrder(members);
    sums.push_back(members[static_cast<size_t>(order[0])]);
    if (size > 1) sums.back() += members[static_cast<size_t>(order[1])];
  }
  const std::vector<int64_t> order = InOrder(sums);
  for (size_t g = static_cast<size_t>(options.kept_groups); g < groups; ++g) {
    const auto first = choice.begin() + order[g] * static_cast<int64_t>(size);
    std::fill(first, first + static_cast<int64_t>(size), -std::numeric_limits<double>::infinity());
  }
}

// [tokens, k] each, on the CPU.
Routed Expected(const Tensor& logits, const Tensor& bias, const RouterOptions& options) {
  const Tensor wide = logits.to(at::kCPU, at::kDouble).contiguous();
  const auto experts = static_cast<size_t>(wide.size(1));
  Tensor chosen = at::empty({wide.size(0), options.top_k}, at::kLong);
  Tensor weights = at::empty({wide.size(0), options.top_k}, at::kDouble);
  for (int64_t row = 0; row < wide.size(0); ++row) {
    const std::vector<double> scores =
        Scores(wide.const_data_ptr<double>() + row * wide.size(1), experts, options.sigmoid);
    std::vector<double> choice = scores;
    if (bias.defined()) {
      const Tensor added = bias.to(at::kCPU, at::kDouble);
      for (size_t e = 0; e < experts; ++e) choice[e] += added.const_data_ptr<double>()[e];
    }
    if (options.groups > 1) MaskGroups(choice, options);
    const std::vector<int64_t> order = InOrder(choice);
    double sum = 0;
    for (int64_t j = 0; j < options.top_k; ++j) sum += scores[size_t(order[size_t(j)])];
    for (int64_t j = 0; j < options.top_k; ++j) {
      const int64_t expert = order[static_cast<size_t>(j)];
      chosen.mutable_data_ptr<int64_t>()[row * options.top_k + j] = expert;
      const double score = scores[static_cast<size_t>(expert)];
      weights.mutable_data_ptr<double>()[row * options.top_k + j] =
          options.scale * (options.normalize ? score / sum : score);
    }
  }
  return {weights, chosen};
}

// Of experts that are chosen already.
Tensor ExpectedWeights(const Tensor& logits, const Tensor& experts, const RouterOptions& options) {
  const Tensor scores = options.sigmoid ? at::sigmoid(logits) : at::softmax(logits, -1);
  Tensor weights = scores.gather(1, experts.to(at::kCPU));
  if (options.normalize) weights = weights / weights.sum(-1, true);
  return weights * options.scale;
}

Tensor ExpectedGradient(const Tensor& grad, const Tensor& logits, const Tensor& experts,
                        const RouterOptions& options) {
  Tensor wide = logits.to(at::kCPU, at::kDouble).detach().requires_grad_();
  return torch::autograd::grad({ExpectedWeights(wide, experts, options)}, {wide},
                               {grad.to(at::kCPU, at::kDouble)})[0];
}

void ExpectNear(const Tensor& actual, const Tensor& expected, double error) {
  const Tensor difference = (actual.to(at::kCPU, at::kDouble) - expected).abs();
  EXPECT_LE(difference.max().item<double>(), error * (expected.abs().max().item<double>() + 1e-3));
}

// What is tested: the operators, or the kernels' text on the host.
class Way {
 public:
  virtual ~Way() = default;
  virtual Routed Forward(const Tensor& logits, const Tensor& bias, const RouterOptions& options) {
    return Route(logits, bias.defined() ? std::optional(bias) : std::nullopt, options);
  }
  virtual Tensor Backward(const Tensor& grad, const Tensor& logits, const Tensor& experts,
                          const RouterOptions& options) {
    return RouteBackward(grad, logits, experts, options);
  }
};

class OnHost : public Way {
 public:
  OnHost() {
    for (const Example& example : kExamples) {
      for (bool backward : {false, true}) Add(FormOf(example), backward);
    }
    kernels_ = std::make_unique<testing::HostKernels>(sources_);
  }
  const std::string& error() const { return kernels_->error(); }

  Routed Forward(const Tensor& logits, const Tensor& bias, const RouterOptions& options) override {
    const Rows rows = RowsOf(logits);
    Tensor weights = at::full({logits.size(0), options.top_k}, -1.0, logits.options());
    Tensor experts = at::full({logits.size(0), options.top_k}, -1, at::kLong);
    const Example example = {"", logits.size(1), bias.defined(), options};
    kernels_->Launch(numbers_.at({false, FormOf(example).Key()}), Blocks(logits),
                     fusion::kRouterThreads, InPointer(rows.tensor),
                     bias.defined() ? InPointer(bias) : nullptr, OutPointer(weights),
                     OutPointer(experts), static_cast<long long>(logits.size(0)),
                     static_cast<long long>(rows.stride), static_cast<int>(logits.size(1)),
                     static_cast<int>(options.top_k), static_cast<int>(options.groups),
                     static_cast<int>(options.kept_groups), static_cast<float>(options.scale));
    return {weights, experts};
  }

  Tensor Backward(const Tensor& grad, const Tensor& logits, const Tensor& experts,
                  const RouterOptions& options) override {
    const Rows rows = RowsOf(logits);
    Tensor result = at::full(logits.sizes(), 77.0, logits.options());
    const Example example = {"", logits.size(1), false, options};
    kernels_->Launch(numbers_.at({true, FormOf(example, true).Key()}), Blocks(logits),
                     fusion::kRouterThreads, InPointer(grad), InPointer(rows.tensor),
                     InPointer(experts), OutPointer(result), static_cast<long long>(logits.size(0)),
                     static_cast<long long>(rows.stride), static_cast<int>(logits.size(1)),
                     static_cast<int>(options.top_k), static_cast<float>(options.scale));
    return result;
  }

 private:
  using Key = std::pair<bool, decltype(fusion::RouterForm().Key())>;

  static fusion::RouterForm FormOf(const Example& example, bool backward = false) {
    return {.sigmoid = example.options.sigmoid,
            .biased = example.biased && !backward,
            .grouped = example.options.groups > 1 && !backward,
            .normalized = example.options.normalize,
            .vectors = static_cast<int>((example.experts + 31) / 32)};
  }
  static int64_t Blocks(const Tensor& logits) {
    return (logits.size(0) * 32 + fusion::kRouterThreads - 1) / fusion::kRouterThreads;
  }
  void Add(fusion::RouterForm form, bool backward) {
    if (backward) form.biased = form.grouped = false;
    if (!numbers_.try_emplace({backward, form.Key()}, sources_.size()).second) return;
    sources_.push_back(backward ? fusion::RouterBackwardSource(form) : fusion::RouterSource(form));
  }

  std::vector<fusion::RowKernel> sources_;
  std::map<Key, size_t> numbers_;
  std::unique_ptr<testing::HostKernels> kernels_;
};

class Router : public ::testing::Test {
 protected:
  Tensor Random(at::IntArrayRef sizes) {
    return at::randn(sizes, generator_, at::TensorOptions(at::kFloat)).to(device_);
  }

  void Check(Way& way, const Example& example, const Tensor& logits) {
    const RouterOptions& options = example.options;
    const Tensor bias = example.biased ? 0.1 * Random({example.experts}) : Tensor();
    auto [weights, experts] = way.Forward(logits, bias, options);
    auto [expected_weights, expected_experts] = Expected(logits, bias, options);
    EXPECT_TRUE(at::equal(experts.cpu(), expected_experts))
        << at::nonzero(experts.cpu() != expected_experts).narrow(0, 0, 1) << experts.cpu();
    ExpectNear(weights, expected_weights, 2e-6);
    const Tensor grad = Random(weights.sizes());
    ExpectNear(way.Backward(grad, logits, experts, options),
               ExpectedGradient(grad, logits, experts, options), 5e-6);
  }

  void CheckAll(Way& way, int64_t tokens) {
    for (const Example& example : kExamples) {
      SCOPED_TRACE(example.name);
      const int64_t experts = example.experts;
      Check(way, example, Random({tokens, experts}));
      // Cut out of wider rows, at an odd place.
      Check(way, example, Random({3, experts + 5}).narrow(1, 3, experts));
      Check(way, example, Random({1, experts}));
    }
  }

  // Scores of which many are equal: the first expert is taken first, and the first group.
  void CheckTies(Way& way, int64_t tokens) {
    for (Example example : kExamples) {
      SCOPED_TRACE(example.name);
      example.biased = false;
      // The kernels' text is compiled for what examples have.
      const bool other = &way != &operators_;
      if (other && Biased(example.name)) continue;
      for (int64_t values : {1, 2, 4}) {
        const Tensor logits =
            at::randint(values, {tokens, example.experts}, generator_, at::kFloat).to(device_);
        auto [weights, experts] = way.Forward(logits, {}, example.options);
        EXPECT_TRUE(at::equal(experts.cpu(), std::get<1>(Expected(logits, {}, example.options))));
        if (values == 1) {
          EXPECT_TRUE(
              at::equal(experts.cpu(), at::arange(example.options.top_k).expand(experts.sizes())));
        }
      }
    }
  }

  static bool Biased(std::string_view name) {
    return std::any_of(std::begin(kExamples), std::end(kExamples),
                       [&](const Example& one) { return name == one.name && one.biased; });
  }

  // NaN is chosen first, as libtorch's sort has it, and every choice is an expert, whatever the numbers are.
  void CheckHostile(Way& way) {
    for (const Example& example : kExamples) {
      SCOPED_TRACE(example.name);
      const Tensor bias = example.biased ? at::zeros({example.experts}, Options()) : Tensor();
      for (double value : {double(NAN), double(INFINITY), double(-INFINITY), 1e38, -1e38, -0.0}) {
        for (bool everywhere : {false, true}) {
          Tensor logits = Random({5, example.experts});
          everywhere ? logits.fill_(value) : logits.select(1, example.experts / 2).fill_(value);
          const Tensor experts = std::get<1>(way.Forward(logits, bias, example.options)).cpu();
          EXPECT_GE(experts.min().item<int64_t>(), 0);
          EXPECT_LT(experts.max().item<int64_t>(), example.experts);
          const Tensor sorted = std::get<0>(experts.sort(-1));
          if (example.options.top_k > 1) {
            EXPECT_TRUE(at::all(at::diff(sorted) > 0).item<bool>()) << "an expert twice";
          }
          // Of groups, two large numbers may be more than an infinite one, whose score is 1.
          const bool first =
              std::isnan(value) || (value == INFINITY && example.options.groups == 1);
          if (example.options.sigmoid && !everywhere && first) {
            EXPECT_TRUE(at::all(experts.select(1, 0) == example.experts / 2).item<bool>()) << value;
          }
        }
      }
    }
  }

  at::TensorOptions Options() const { return at::TensorOptions(device_).dtype(at::kFloat); }

  c10::Device device_{c10::kCPU};
  at::Generator generator_ = at::globalContext().defaultGenerator(c10::kCPU).clone();
  Way operators_;
};

TEST_F(Router, ChoosesAndWeighs) { CheckAll(operators_, 200); }
TEST_F(Router, BreaksTiesByTheExpertsNumber) { CheckTies(operators_, 50); }
TEST_F(Router, StandsAnyNumbers) { CheckHostile(operators_); }

// In float64 gradients can be compared with differences.
TEST_F(Router, GradientsAreThoseOfDifferences) {
  for (const Example& example : kExamples) {
    SCOPED_TRACE(example.name);
    const Tensor logits = Random({2, example.experts}).to(at::kDouble);
    auto [weights, experts] = Route(logits, std::nullopt, example.options);
    const Tensor grad = Random(weights.sizes()).to(at::kDouble);
    const Tensor slope = RouteBackward(grad, logits, experts, example.options);
    constexpr double kStep = 1e-6;
    for (int64_t e = 0; e < example.experts; e += 3) {
      auto at_step = [&](double step) {
        Tensor moved = logits.clone();
        moved[1][e] += step;
        return (ExpectedWeights(moved, experts, example.options) * grad).sum().item<double>();
      };
      EXPECT_NEAR(slope[1][e].item<double>(), (at_step(kStep) - at_step(-kStep)) / (2 * kStep),
                  1e-7);
    }
  }
}

class RouterText : public Router {
 protected:
  void SetUp() override {
    if (!testing::HasHostCompiler()) GTEST_SKIP() << "there is no compiler here";
    static auto* way = new OnHost();
    ASSERT_EQ(way->error(), "");
    way_ = way;
  }
  OnHost* way_ = nullptr;
};
TEST_F(RouterText, ChoosesAndWeighs) { CheckAll(*way_, 9); }
TEST_F(RouterText, BreaksTiesByTheExpertsNumber) { CheckTies(*way_, 6); }
TEST_F(RouterText, StandsAnyNumbers) { CheckHostile(*way_); }
// An expert that is given twice has the gradients of both, one after the other.
TEST_F(RouterText, AddsUpWhatIsGivenTwice) {
  const Example& example = kExamples[0];
  const Tensor logits = Random({6, example.experts});
  const Tensor experts = at::randint(3, {6, example.options.top_k}, generator_, at::kLong);
  const Tensor grad = Random(experts.sizes());
  ExpectNear(way_->Backward(grad, logits, experts, example.options),
             ExpectedGradient(grad, logits, experts, example.options), 5e-6);
}

class RouterOnGpu : public Router {
 protected:
  void SetUp() override {
    if (!CudaUsable()) GTEST_SKIP() << "there is no GPU";
    device_ = c10::Device(c10::kCUDA, 0);
  }
};
TEST_F(RouterOnGpu, ChoosesAndWeighs_gpu) { CheckAll(operators_, 3000); }
TEST_F(RouterOnGpu, BreaksTiesByTheExpertsNumber_gpu) { CheckTies(operators_, 200); }
TEST_F(RouterOnGpu, StandsAnyNumbers_gpu) { CheckHostile(operators_); }
TEST_F(RouterOnGpu, EveryCallGivesTheSameBits_gpu) {
  for (const Example& example : kExamples) {
    SCOPED_TRACE(example.name);
    const Tensor logits = Random({4096, example.experts});
    auto [weights, experts] = Route(logits, std::nullopt, example.options);
    const Tensor grad = Random(weights.sizes());
    const Tensor slope = RouteBackward(grad, logits, experts, example.options);
    for (int i = 0; i < 3; ++i) {
      auto [again, experts_again] = Route(logits.clone(), std::nullopt, example.options);
      EXPECT_TRUE(at::equal(again, weights) && at::equal(experts_again, experts));
      EXPECT_TRUE(at::equal(RouteBackward(grad, logits, experts, example.options), slope));
    }
  }
}
// Scores have the bits of libtorch's softmax and sigmoid.
TEST_F(RouterOnGpu, ScoresAreLibtorchs_gpu) {
  for (const Example& example : kExamples) {
    if (example.options.normalize || example.options.scale != 1.0) continue;
    SCOPED_TRACE(example.name);
    const Tensor logits = Random({4096, example.experts});
    auto [weights, experts] = Route(logits, std::nullopt, example.options);
    const Tensor scores = example.options.sigmoid ? at::sigmoid(logits) : at::softmax(logits, -1);
    EXPECT_TRUE(at::equal(scores.gather(1, experts), weights));
  }
}

}  // namespace
}  // namespace gt::router_test
