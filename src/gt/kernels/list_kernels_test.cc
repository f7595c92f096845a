// The kernels over lists of tensors compile for every architecture that gt knows; on a GPU they give libtorch's bits,
// whatever the sizes, dtypes, places in memory and numbers are.
#include "gt/kernels/list_kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "gt/fusion/nvrtc.h"
#include "gt/torch_bridge/device.h"

namespace gt::list_kernels_test {
namespace {

TEST(ListKernelsTest, CompileForEveryArchitecture) {
  const fusion::Nvrtc* nvrtc = fusion::Nvrtc::Get();
  if (nvrtc == nullptr) GTEST_SKIP() << fusion::Nvrtc::WhyMissing();
  for (const fusion::KernelSource& source : ListKernels::Sources()) {
    for (const int architecture : {80, 90, 100}) {
      const fusion::Nvrtc::Result result = nvrtc->Compile(source.text, source.name, architecture);
      EXPECT_FALSE(result.cubin.empty()) << source.name << " sm_" << architecture << result.log;
    }
  }
}

TEST(ListKernelsTest, LeaveWhatIsNotOnAGpuToLibtorch) {
  ListKernels kernels;
  const at::Tensor x = at::ones({4});
  EXPECT_FALSE(kernels.SumOfSquares(std::vector<at::Tensor>{x}).defined());
  const AdamWRow row = {x, x.clone(), x.clone(), x.clone(), at::ones({}), 0.1};
  EXPECT_FALSE(kernels.UpdateAdamW(std::vector<AdamWRow>{row}, {0.1, 0.9, 0.95, 1e-8}));
  EXPECT_TRUE(x.equal(at::ones({4})));
}

class ListKernelsOnGpu : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!CudaUsable()) GTEST_SKIP() << "there is no GPU";
    at::manual_seed(7);
  }

  at::TensorOptions Options() const { return at::TensorOptions(GetParam()).device(at::kCUDA); }

  // Sizes that blocks and vectors do not divide, a transposed tensor, and one whose memory begins anywhere.
  std::vector<at::Tensor> Tensors(double scale) const {
    std::vector<at::Tensor> tensors;
    for (const int64_t size : {1, 33, 16384, 16385, 70001, 1 << 20}) {
      tensors.push_back(at::randn({size}, Options()) * scale);
    }
    tensors.push_back((at::randn({65, 129}, Options()) * scale).t());
    tensors.push_back((at::randn({1003}, Options()) * scale).narrow(0, 3, 1000));
    tensors.push_back(at::empty({0}, Options()));
    return tensors;
  }

  static void Spoil(at::Tensor& tensor) {
    const double infinity = std::numeric_limits<double>::infinity();
    const std::vector<double> hostile = {
        std::numeric_limits<double>::quiet_NaN(), infinity, -infinity, -0.0, 1e-40, 3e38};
    for (size_t i = 0; i < hostile.size(); ++i) {
      tensor.flatten()[static_cast<int64_t>(i)] = hostile[i];
    }
  }
};

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType bits = a.element_size() == 2 ? at::kShort : at::kInt;
  return a.contiguous().view(bits).equal(b.contiguous().view(bits));
}

TEST_P(ListKernelsOnGpu, UpdateLikeLibtorch) {
  for (const double decay : {0.0, 0.1}) {
    for (const double divisor : {1.0, 7.25, 0.5}) {
      std::vector<at::Tensor> parameters = Tensors(1), gradients = Tensors(1e-3),
                              mean = Tensors(1e-2), square = Tensors(1), steps;
      for (at::Tensor& tensor : square) tensor.abs_();
      Spoil(gradients[4]);
      for (size_t i = 0; i < parameters.size(); ++i) {
        steps.push_back(at::full({}, static_cast<double>(1 + 37 * i), Options().dtype(at::kFloat)));
      }
      std::vector<AdamWRow> rows;
      for (size_t i = 0; i < parameters.size(); ++i) {
        rows.push_back({parameters[i].clone(), gradients[i].clone(), mean[i].clone(),
                        square[i].clone(), steps[i], decay});
      }
      // A clone begins where memory is aligned; this one must not.
      rows[7].parameter = at::empty({1003}, Options()).narrow(0, 3, 1000).copy_(parameters[7]);
      ListKernels kernels;
      ASSERT_TRUE(kernels.UpdateAdamW(rows, {3e-4, 0.9, 0.95, 1e-8, divisor}));
      std::optional<at::Tensor> scale;
      if (divisor != 1.0) scale = at::full({}, divisor, Options().dtype(at::kFloat));
      std::vector<at::Tensor> given;
      for (const at::Tensor& gradient : gradients) given.push_back(gradient.clone());
      at::_fused_adamw_(parameters, given, mean, square, {}, steps, 3e-4, 0.9, 0.95, decay, 1e-8,
                        false, false, scale);
      for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_TRUE(SameBits(rows[i].parameter, parameters[i])) << i << " " << decay << divisor;
        EXPECT_TRUE(SameBits(rows[i].mean, mean[i])) << i << " " << decay << " " << divisor;
        EXPECT_TRUE(SameBits(rows[i].mean_square, square[i])) << i << " " << decay << divisor;
        EXPECT_TRUE(SameBits(rows[i].gradient, gradients[i])) << "gradients are left alone";
      }
    }
  }
}

// Lists that grow, shrink and move are sent again.
TEST_P(ListKernelsOnGpu, SumSquares) {
  ListKernels kernels;
  for (int round = 0; round < 3; ++round) {
    std::vector<at::Tensor> tensors = Tensors(0.1 + round);
    if (round == 1) tensors.pop_back();
    double expected = 0;
    for (const at::Tensor& tensor : tensors) {
      expected += tensor.to(at::kDouble).square().sum().item<double>();
    }
    const at::Tensor sum = kernels.SumOfSquares(tensors);
    ASSERT_TRUE(sum.defined());
    EXPECT_NEAR(sum.item<double>() / expected, 1, 1e-6);
    EXPECT_EQ(sum.item<double>(), kernels.SumOfSquares(tensors).item<double>());
  }
  const at::Tensor gaps = at::ones({8, 8}, Options()).narrow(1, 0, 4);
  EXPECT_FALSE(kernels.SumOfSquares(std::vector<at::Tensor>{gaps}).defined());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ListKernelsOnGpu, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& dtype) {
                           return std::string(dtype.param == at::kFloat ? "f32" : "bf16") + "_gpu";
                         });

}  // namespace
}  // namespace gt::list_kernels_test
