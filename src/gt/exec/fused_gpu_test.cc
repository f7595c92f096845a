// On a GPU: the code of every operator gives ATen's bits, and what is wrong with the store of kernels costs
// time and nothing else.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "gt/exec/fused_kernels.h"
#include "gt/exec/program.h"
#include "gt/exec/reference.h"
#include "gt/fusion/kernel_compiler.h"
#include "gt/fusion/nvrtc.h"
#include "gt/ir/builder.h"
#include "gt/ir/text.h"
#include "gt/kernels/cuda_driver.h"
#include "gt/testing/temp_folder.h"
#include "gt/torch_bridge/device.h"

namespace gt::fused_gpu_test {
namespace {

constexpr Device kGpu = {DeviceKind::kCuda, 0};

// A graph with one fused node, whose body `make` fills and returns the results of.
class OneGroup {
 public:
  using Make = std::function<std::vector<Value*>(Graph& body, const OneGroup& group)>;

  explicit OneGroup(const Make& make)
      : graph(std::make_unique<Graph>("one")), body_(std::make_shared<Graph>("fused")) {
    body_->ShareShapes(*graph);
    for (Value* result : make(*body_, *this)) {
      body_->AddOutput(OutputRole::kResult, result->name(), result);
    }
    std::vector<Value*> inputs;
    for (const auto& input : body_->inputs()) {
      inputs.push_back(graph->AddInput(InputRole::kInput, input->name, input->value.type()));
    }
    Node* fused = NodeBuilder(*graph, "gt::fused")
                      .Set("inputs", inputs)
                      .Set("body", GraphRef(body_))
                      .Insert();
    for (int32_t i = 0; i < fused->result_count(); ++i) {
      graph->AddOutput(OutputRole::kResult, "r", fused->result(i));
    }
  }

  Value* Input(DType dtype, Shape sizes) const {
    return body_->AddInput(InputRole::kInput, "x",
                           ContiguousType(dtype, kGpu, std::move(sizes), body_->shapes()));
  }

  std::unique_ptr<Graph> graph;

 private:
  std::shared_ptr<Graph> body_;
};

class FusedOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CudaUsable()) GTEST_SKIP() << "there is no GPU";
    ChooseDevice(DeviceChoice::kCuda);
  }

  // Speed is not the question here.
  void ExpectSameBits(const OneGroup::Make& make, const std::string& what) {
    const OneGroup group(make);
    const FusedKernels kernels(*group.graph, at::Device(at::kCUDA, 0), folder_.path());
    ASSERT_EQ(kernels.report().missing, "") << what;
    EXPECT_EQ(kernels.report().kernels, 1) << what;
    for (const std::string& why : kernels.report().rejected) {
      EXPECT_EQ(why.find("bits differ"), std::string::npos) << what << ": " << why;
    }
    ++compared_;
  }

  testing::TempFolder folder_;
  int compared_ = 0;
};

TEST_F(FusedOnGpu, EveryOperatorGivesItsBits_gpu) {
  const Shape sizes = {Dim(67), Dim(1024)}, odd = {Dim(67), Dim(33)};
  const auto unary = [&](const char* op, DType dtype, const Shape& shape) {
    ExpectSameBits(
        [&](Graph& body, const OneGroup& group) {
          return std::vector<Value*>{
              NodeBuilder(body, op).Set("self", group.Input(dtype, shape)).Result()};
        },
        std::string(op) + " " + std::string(DTypeName(dtype)));
  };
  const auto binary = [&](const char* op, const char* a, const char* b, DType dtype, DType other) {
    ExpectSameBits(
        [&](Graph& body, const OneGroup& group) {
          Value* x = group.Input(dtype, sizes);
          return std::vector<Value*>{
              NodeBuilder(body, op).Set(a, x).Set(b, group.Input(other, sizes)).Result()};
        },
        std::string(op) + " " + std::string(DTypeName(dtype)) + " " +
            std::string(DTypeName(other)));
  };
  const auto number = [&](const char* op, const char* name, const Argument& value, DType dtype) {
    ExpectSameBits(
        [&](Graph& body, const OneGroup& group) {
          return std::vector<Value*>{NodeBuilder(body, op)
                                         .Set("self", group.Input(dtype, sizes))
                                         .Set(name, value)
                                         .Result()};
        },
        std::string(op) + " with a number, " + std::string(DTypeName(dtype)));
  };
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const char* op : {"aten::abs", "aten::exp", "aten::log", "aten::sqrt", "aten::rsqrt",
                           "aten::tanh", "aten::sin", "aten::cos", "aten::reciprocal",
                           "aten::sigmoid", "aten::silu", "aten::neg", "aten::relu"}) {
      unary(op, dtype, sizes);
      if (dtype == DType::kBFloat16) unary(op, dtype, odd);
    }
    for (const char* op :
         {"aten::add.Tensor", "aten::sub.Tensor", "aten::mul.Tensor", "aten::div.Tensor",
          "aten::maximum", "aten::minimum", "aten::rsub.Tensor", "aten::lt.Tensor",
          "aten::ge.Tensor", "aten::eq.Tensor"}) {
      binary(op, "self", "other", dtype, dtype);
    }
    binary("aten::mul.Tensor", "self", "other", dtype, DType::kFloat32);
    binary("aten::silu_backward", "grad_output", "self", dtype, dtype);
    number("aten::mul.Tensor", "other", 0.1, dtype);
    number("aten::add.Tensor", "other", 0.3, dtype);
    number("aten::div.Tensor", "other", 3.0, dtype);
    number("aten::pow.Tensor_Scalar", "exponent", Dim(2), dtype);
    number("aten::clamp_min", "min", -0.3, dtype);
    number("aten::clamp_max", "max", 0.3, dtype);
    number("aten::gt.Scalar", "other", 0.3, dtype);
    for (DType to : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
      number("aten::_to_copy", "dtype", to, dtype);
    ExpectSameBits(
        [&](Graph& body, const OneGroup& group) {
          Value* x = group.Input(dtype, sizes);
          return std::vector<Value*>{NodeBuilder(body, "aten::add.Tensor")
                                         .Set("self", x)
                                         .Set("other", group.Input(dtype, sizes))
                                         .Set("alpha", 0.7)
                                         .Result()};
        },
        "a sum with a factor");
    ExpectSameBits(
        [&](Graph& body, const OneGroup& group) {
          Value* x = group.Input(dtype, sizes);
          Value* mask =
              NodeBuilder(body, "aten::lt.Scalar").Set("self", x).Set("other", 0.25).Result();
          Value* filled = NodeBuilder(body, "aten::masked_fill.Scalar")
                              .Set("self", x)
                              .Set("mask", mask)
                              .Set("value", 0.1)
                              .Result();
          return std::vector<Value*>{NodeBuilder(body, "aten::where.self")
                                         .Set("condition", mask)
                                         .Set("self", filled)
                                         .Set("other", x)
                                         .Result()};
        },
        "where and masked_fill");
    for (int64_t terms : {2, 3, 6, 8, 13, 16}) {
      ExpectSameBits(
          [&](Graph& body, const OneGroup& group) {
            Value* x = group.Input(dtype, {Dim(61), Dim(terms), Dim(512)});
            return std::vector<Value*>{NodeBuilder(body, "aten::sum.dim_IntList")
                                           .Set("self", x)
                                           .Set("dim", Shape{Dim(1)})
                                           .Result()};
          },
          "a sum of " + std::to_string(terms));
    }
  }
  binary("aten::sigmoid_backward", "grad_output", "output", DType::kFloat32, DType::kFloat32);
  binary("aten::tanh_backward", "grad_output", "output", DType::kFloat32, DType::kFloat32);
  binary("aten::mul.Tensor", "self", "other", DType::kComplex64, DType::kComplex64);
  binary("aten::add.Tensor", "self", "other", DType::kInt64, DType::kInt64);
  number("aten::floor_divide.Scalar", "other", Dim(6), DType::kInt64);
  for (DType from : {DType::kInt64, DType::kInt32, DType::kBool}) {
    for (DType to : {DType::kFloat32, DType::kBFloat16})
      number("aten::_to_copy", "dtype", to, from);
  }
  ExpectSameBits(
      [&](Graph& body, const OneGroup& group) {
        Value* g = group.Input(DType::kFloat32, {});
        Value* y = group.Input(DType::kFloat32, {Dim(64), Dim(32000)});
        Value* t = group.Input(DType::kInt64, {Dim(64)});
        Value* n = NodeBuilder(body, "aten::nll_loss_backward")
                       .Set("grad_output", g)
                       .Set("self", y)
                       .Set("target", t)
                       .Set("reduction", Dim(2))
                       .Set("ignore_index", Dim(-100))
                       .Set("total_weight", group.Input(DType::kFloat32, {}))
                       .Result();
        return std::vector<Value*>{NodeBuilder(body, "aten::_log_softmax_backward_data")
                                       .Set("grad_output", n)
                                       .Set("output", y)
                                       .Set("dim", Dim(1))
                                       .Set("input_dtype", DType::kFloat32)
                                       .Result()};
      },
      "the gradient of a loss");
  EXPECT_GT(compared_, 100);
}

constexpr const char* kSwiGlu =
    R"(graph @g(%a: input "a" bf16[64, 4096] @cuda:0, %b: input "b" bf16[64, 4096] @cuda:0) {
  %y = gt::fused([%a, %b], body = graph @fused(%c: input "c" bf16[64, 4096] @cuda:0, %d: input "d" bf16[64, 4096] @cuda:0) {
    %s = aten::silu(%c) : bf16[64, 4096] @cuda:0
    %m = aten::mul.Tensor(%s, %d) : bf16[64, 4096] @cuda:0
    return result "m" %m
  }) : bf16[64, 4096] @cuda:0
  return result "y" %y
})";

// Rotation of queries by their positions. Which of its products ATen rounds is found by comparison, and the
// wrong ones differ in one of many bf16 results only.
std::string Rope(int64_t length, int64_t heads) {
  return fmt::format(
      R"(graph @one(%x: input "x" bf16[{0}, {1}, 4] @cuda:0, %f: input "f" c64[{0}, 1, 2] @cuda:0) {{
  %y = gt::fused([%x, %f], body = graph @fused(%x: input "x" bf16[{0}, {1}, 4] @cuda:0, %f: input "f" c64[{0}, 1, 2] @cuda:0) {{
    %c = aten::_to_copy(%x, dtype = f32) : f32[{0}, {1}, 4] @cuda:0
    %v = aten::view(%c, size = [{0}, {1}, 2, 2]) : f32[{0}, {1}, 2, 2] @cuda:0
    %z = aten::view_as_complex(%v) : c64[{0}, {1}, 2] @cuda:0
    %m = aten::mul.Tensor(%z, %f) : c64[{0}, {1}, 2] @cuda:0
    %r = aten::view_as_real(%m) : f32[{0}, {1}, 2, 2] @cuda:0
    %w = aten::view(%r, size = [{0}, {1}, 4]) : f32[{0}, {1}, 4] @cuda:0
    %b = aten::_to_copy(%w, dtype = bf16) : bf16[{0}, {1}, 4] @cuda:0
    return result "b" %b
  }}) : bf16[{0}, {1}, 4] @cuda:0
  return result "y" %y
}})",
      length, heads);
}

TEST_F(FusedOnGpu, FewElementsTellFormsApartAsManyDo_gpu) {
  const auto forms_compared = [&](int64_t length, int64_t heads) {
    const auto graph = Parse(Rope(length, heads));
    const testing::TempFolder store;
    const FusedKernels kernels(*graph, at::Device(at::kCUDA, 0), store.path());
    EXPECT_EQ(kernels.report().missing, "");
    for (const std::string& why : kernels.report().rejected) {
      EXPECT_EQ(why.find("bits differ"), std::string::npos) << why;
    }
    return kernels.report().compared;
  };
  const int64_t forms = forms_compared(4096, 256);
  for (int64_t length : {1, 2, 5, 64}) EXPECT_EQ(forms_compared(length, 3), forms) << length;
}

// A view that repeats its elements, and begins where vectors cannot.
TEST_F(FusedOnGpu, RepeatedElementsAreRealigned_gpu) {
  ExpectSameBits(
      [&](Graph& body, const OneGroup& group) {
        Value* row = group.Input(DType::kBFloat16, {Dim(1), Dim(512)});
        Value* rows = NodeBuilder(body, "aten::expand")
                          .Set("self", row)
                          .Set("size", std::vector<Dim>{Dim(64), Dim(512)})
                          .Result();
        Value* other = group.Input(DType::kBFloat16, {Dim(64), Dim(512)});
        return std::vector<Value*>{
            NodeBuilder(body, "aten::mul.Tensor").Set("self", rows).Set("other", other).Result()};
      },
      "expand");
}

TEST_F(FusedOnGpu, DamagedStoresCostTimeAndNothingElse_gpu) {
  const auto graph = Parse(kSwiGlu);
  const auto options = at::TensorOptions(at::Device(at::kCUDA, 0)).dtype(at::kBFloat16);
  const std::vector<at::Tensor> inputs = {at::randn({64, 4096}, options),
                                          at::randn({64, 4096}, options)};
  const at::Tensor expected = RunReference(*graph, inputs)[0];
  const auto run = [&](const std::filesystem::path& store) {
    const FusedKernels kernels(*graph, at::Device(at::kCUDA, 0), store);
    // Unless other programs keep the GPU so busy that it came out as the slower one.
    for (const std::string& why : kernels.report().rejected) {
      EXPECT_NE(why.find("it takes "), std::string::npos) << why;
    }
    EXPECT_TRUE(kernels.Find(*graph->first()) != nullptr || !kernels.report().rejected.empty());
    EXPECT_TRUE(at::equal(Program(*graph, &kernels).Run(inputs)[0].view(at::kShort),
                          expected.view(at::kShort)));
    return kernels.report();
  };
  EXPECT_EQ(run(folder_.path()).compiled, 1);
  EXPECT_EQ(run(folder_.path()).compiled, 0);
  for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
    std::ofstream(file.path(), std::ios::app) << "more";
  }
  EXPECT_EQ(run(folder_.path()).compiled, 1);
  EXPECT_EQ(run("/proc/no/such/folder").compiled, 1);
  // A view that begins at an odd place.
  const FusedKernels kernels(*graph, at::Device(at::kCUDA, 0), folder_.path());
  const at::Tensor storage = at::randn({64 * 4096 + 1}, options);
  const std::vector<at::Tensor> odd = {storage.slice(0, 1).view({64, 4096}), inputs[1]};
  EXPECT_TRUE(at::equal(Program(*graph, &kernels).Run(odd)[0].view(at::kShort),
                        RunReference(*graph, odd)[0].view(at::kShort)));
}

// A binary that is whole and of no use: for another GPU, as if it had been made for a newer driver. Kernels
// that this process has loaded stay loaded, so each case is a kernel of its own.
TEST_F(FusedOnGpu, WhatTheDriverRefusesIsMadeAgain_gpu) {
  const fusion::Nvrtc* nvrtc = fusion::Nvrtc::Get();
  ASSERT_NE(nvrtc, nullptr);
  for (const bool other_gpu : {false, true}) {
    std::string text = kSwiGlu;
    for (size_t at = 0; (at = text.find("aten::silu", at)) != std::string::npos; ++at) {
      text.replace(at, 10, other_gpu ? "aten::sigmoid" : "aten::tanh");
    }
    const auto graph = Parse(text);
    const auto options = at::TensorOptions(at::Device(at::kCUDA, 0)).dtype(at::kBFloat16);
    const std::vector<at::Tensor> inputs = {at::randn({64, 4096}, options),
                                            at::randn({64, 4096}, options)};
    const at::Tensor expected = RunReference(*graph, inputs)[0];
    const auto source = fusion::MakeKernelSource(*FusedBody(*graph->first()));
    ASSERT_TRUE(source);
    const int architecture = CudaDriver::Get()->Architecture(0);
    fusion::KernelStore store(folder_.path());
    store.Put(fusion::KernelKey(*source, architecture) + ".cubin",
              other_gpu ? nvrtc->Compile(source->text, source->name, 120).cubin : "no binary");
    ::testing::internal::CaptureStderr();
    const FusedKernels kernels(*graph, at::Device(at::kCUDA, 0), folder_.path());
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("the driver refuses"), std::string::npos) << said;
    EXPECT_EQ(kernels.report().compiled, 1);
    EXPECT_EQ(kernels.report().missing, "");
    EXPECT_TRUE(at::equal(Program(*graph, &kernels).Run(inputs)[0].view(at::kShort),
                          expected.view(at::kShort)));
  }
}

}  // namespace
}  // namespace gt::fused_gpu_test
