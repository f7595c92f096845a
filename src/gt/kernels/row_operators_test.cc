// Operators on rows against their formulas in float64, and combined ones against their parts, bit for bit. On a
// CPU these are the compositions, on a GPU the kernels.
#include "gt/kernels/row_operators.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "gt/torch_bridge/device.h"

namespace gt::row_operators_test {
namespace {

using at::Tensor;

// How a tensor is in memory: its rows next to each other, cut out of wider ones, or beginning at an odd place.
enum class Layout { kDense, kCut, kMisaligned };

class RowOperators : public ::testing::Test {
 protected:
  Tensor Random(at::IntArrayRef sizes, at::ScalarType type, Layout layout = Layout::kDense) {
    const auto options = at::TensorOptions(device_).dtype(at::kFloat);
    std::vector<int64_t> memory = sizes.vec();
    if (layout == Layout::kCut) memory.back() += 24;
    int64_t count = layout == Layout::kMisaligned ? 1 : 0, elements = 1;
    for (int64_t size : memory) elements *= size;
    Tensor flat = at::randn({elements + count}, generator_, at::TensorOptions(at::kFloat));
    Tensor shaped = flat.to(options.device()).to(type).narrow(0, count, elements).view(memory);
    return shaped.narrow(-1, 0, sizes.back());
  }

  // Of what is computed in float32 and rounded once or twice.
  static void ExpectNear(const Tensor& actual, const Tensor& expected, const std::string& what,
                         double scale = 1) {
    const double rounding = actual.scalar_type() == at::kBFloat16 ? 1.0 / 128
                            : actual.scalar_type() == at::kHalf   ? 1.0 / 1024
                                                                  : 2e-6;
    const Tensor wide = actual.to(at::kDouble), wanted = expected.to(at::kDouble);
    const double most = wanted.abs().max().item<double>();
    const double error = (wide - wanted).abs().max().item<double>();
    EXPECT_LE(error, rounding * scale * (most + 1e-3)) << what;
    EXPECT_TRUE(actual.is_contiguous()) << what;
  }

  static void ExpectSameBits(const Tensor& a, const Tensor& b, const std::string& what) {
    EXPECT_EQ(a.sizes(), b.sizes()) << what;
    EXPECT_EQ(a.scalar_type(), b.scalar_type()) << what;
    EXPECT_TRUE(at::equal(a.contiguous().view(at::kByte), b.contiguous().view(at::kByte))) << what;
  }

  template <typename... Args>
  static std::vector<Tensor> Call(const char* op, Args&&... args) {
    torch::jit::Stack stack = {std::forward<Args>(args)...};
    c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(&stack);
    std::vector<Tensor> results;
    for (const c10::IValue& value : stack) results.push_back(value.toTensor());
    return results;
  }

  void CheckNorms();
  void CheckDots();
  void CheckCrossEntropy();

  c10::Device device_{c10::kCPU};
  at::Generator generator_ = at::globalContext().defaultGenerator(c10::kCPU).clone();
};

constexpr at::ScalarType kTypes[] = {at::kBFloat16, at::kHalf, at::kFloat};
constexpr Layout kLayouts[] = {Layout::kDense, Layout::kCut, Layout::kMisaligned};

void RowOperators::CheckNorms() {
  for (at::ScalarType type : kTypes) {
    for (int64_t width : {7, 512, 1000, 2048, 4096, 20000}) {
      for (Layout layout : kLayouts) {
        const std::string what =
            fmt::format("{} {} {}", toString(type), width, static_cast<int>(layout));
        const Tensor x = Random({3, 50, width}, type, layout), other = Random({3, 50, width}, type);
        const Tensor weight = Random({width}, type), grad = Random({3, 50, width}, type, layout);
        const double eps = 1e-5;
        auto [out, rstd] = RowRmsNorm(x, weight, eps);
        Tensor wide = x.to(at::kDouble).requires_grad_(),
               factor = weight.to(at::kDouble).requires_grad_();
        Tensor root = at::rsqrt(wide.square().mean({-1}, true) + eps);
        Tensor expected = wide * root * factor;
        ExpectNear(out, expected.detach(), "out " + what);
        ExpectNear(rstd, root.detach(), "rstd " + what, 4);

        auto [of_x, of_weight] = RowRmsNormBackward(grad, x, rstd, weight);
        auto gradients = torch::autograd::grad({expected}, {wide, factor}, {grad.to(at::kDouble)});
        ExpectNear(of_x, gradients[0], "gradient of x " + what, 2);
        ExpectNear(of_weight, gradients[1], "gradient of the weight " + what, 8);

        const std::vector<Tensor> added = Call("gt::add_rms_norm", x, other, weight, eps);
        const Tensor sum = at::add(x, other).contiguous();
        auto [sum_out, sum_rstd] = RowRmsNorm(sum, weight, eps);
        ExpectSameBits(added[0], sum, "sum " + what);
        ExpectSameBits(added[1], sum_out, "norm of the sum " + what);
        ExpectSameBits(added[2], sum_rstd, "statistics of the sum " + what);

        const std::vector<Tensor> more =
            Call("gt::rms_norm_backward", grad, x, rstd, weight, other);
        ExpectSameBits(more[0], at::add(of_x, other), "added gradient " + what);
        ExpectSameBits(more[1], of_weight, "gradient of the weight beside it " + what);
      }
    }
  }
}

void RowOperators::CheckDots() {
  for (at::ScalarType type : kTypes) {
    for (int64_t width : {5, 256, 2048, 2050}) {
      for (Layout layout : kLayouts) {
        const std::string what =
            fmt::format("{} {} {}", toString(type), width, static_cast<int>(layout));
        const Tensor rows = Random({60, width}, type), gradient = Random({20, width}, type, layout);
        const Tensor index = at::randperm(60, generator_, at::kLong).to(device_);
        const Tensor slots = rows.index_select(0, index).view({20, 3, width});
        const Tensor other = gradient.unsqueeze(1);
        const Tensor dots = RowDots(slots, other);
        ExpectNear(dots, (slots.to(at::kDouble) * other.to(at::kDouble)).sum(-1), what, 20);
        EXPECT_EQ(dots.scalar_type(), at::kFloat);
        ExpectSameBits(Call("gt::row_dots_at", rows, index.view({20, 3}), other)[0], dots, what);
        // Of more dimensions, and of one.
        const Tensor many = Random({2, 3, 2, 4, width}, type), one = Random({width}, type);
        ExpectNear(RowDots(many, one), (many.to(at::kDouble) * one.to(at::kDouble)).sum(-1), what,
                   20);
        ExpectNear(RowDots(one, one), (one.to(at::kDouble) * one.to(at::kDouble)).sum(-1), what,
                   20);
      }
    }
  }
}

void RowOperators::CheckCrossEntropy() {
  for (at::ScalarType type : kTypes) {
    for (int64_t classes : {3, 1000, 32000}) {
      for (Layout layout : kLayouts) {
        const std::string what =
            fmt::format("{} {} {}", toString(type), classes, static_cast<int>(layout));
        const Tensor logits = 3 * Random({40, classes}, type, layout);
        Tensor labels = at::randint(classes, {40}, generator_, at::kLong).to(device_);
        labels.narrow(0, 0, 5).fill_(-100);
        const Tensor log_sum = RowLogSumExp(logits);
        Tensor wide = logits.to(at::kDouble).requires_grad_();
        Tensor expected = at::logsumexp(wide, {-1});
        ExpectNear(log_sum, expected.detach(), "sum " + what);

        const Tensor grad = Random({40}, at::kFloat).masked_fill(labels.eq(-100), 0.0);
        const Tensor of_sum = Random({40}, at::kFloat);
        const Tensor chosen = wide.gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1);
        const Tensor total = (grad.to(at::kDouble) * (expected - chosen)).sum() +
                             (of_sum.to(at::kDouble) * expected).sum();
        const Tensor slope = torch::autograd::grad({total}, {wide})[0];
        ExpectNear(CrossEntropyBackward(grad, grad + of_sum, logits, labels, log_sum, -100), slope,
                   "gradient " + what, 4);
      }
    }
  }
  // A row of minus infinity, and rows with a few of it.
  Tensor logits = at::zeros({2, 600}, at::TensorOptions(device_).dtype(at::kFloat));
  logits.select(0, 0).fill_(-INFINITY);
  logits.select(0, 1).narrow(0, 0, 599).fill_(-INFINITY);
  const Tensor sums = RowLogSumExp(logits).cpu();
  EXPECT_EQ(sums[0].item<float>(), -INFINITY);
  EXPECT_EQ(sums[1].item<float>(), 0.0f);
}

TEST_F(RowOperators, Norms) { CheckNorms(); }
TEST_F(RowOperators, Dots) { CheckDots(); }
TEST_F(RowOperators, CrossEntropy) { CheckCrossEntropy(); }

class RowOperatorsOnGpu : public RowOperators {
 protected:
  void SetUp() override {
    if (!CudaUsable()) GTEST_SKIP() << "there is no GPU";
    device_ = c10::Device(c10::kCUDA, 0);
  }
};
TEST_F(RowOperatorsOnGpu, Norms_gpu) { CheckNorms(); }
TEST_F(RowOperatorsOnGpu, Dots_gpu) { CheckDots(); }
TEST_F(RowOperatorsOnGpu, CrossEntropy_gpu) { CheckCrossEntropy(); }

// Sums depend neither on the run nor on where memory begins.
TEST_F(RowOperatorsOnGpu, EveryCallGivesTheSameBits_gpu) {
  const Tensor x = Random({4096, 2048}, at::kBFloat16), weight = Random({2048}, at::kBFloat16);
  const Tensor grad = Random({4096, 2048}, at::kBFloat16);
  auto moved = [](const Tensor& tensor) {
    Tensor memory = at::empty({tensor.numel() + 1}, tensor.options());
    return memory.narrow(0, 1, tensor.numel()).view(tensor.sizes()).copy_(tensor);
  };
  auto [out, rstd] = RowRmsNorm(x, weight, 1e-6);
  auto [of_x, of_weight] = RowRmsNormBackward(grad, x, rstd, weight);
  const Tensor sums = RowLogSumExp(x), dots = RowDots(x, grad);
  for (int i = 0; i < 3; ++i) {
    auto [again, again_rstd] = RowRmsNorm(moved(x), weight, 1e-6);
    ExpectSameBits(again, out, "out");
    auto [x_again, weight_again] = RowRmsNormBackward(moved(grad), moved(x), again_rstd, weight);
    ExpectSameBits(x_again, of_x, "gradient of x");
    ExpectSameBits(weight_again, of_weight, "gradient of the weight");
    ExpectSameBits(RowLogSumExp(moved(x)), sums, "logarithms of sums");
    ExpectSameBits(RowDots(moved(x), grad), dots, "dots");
  }
}

}  // namespace
}  // namespace gt::row_operators_test
