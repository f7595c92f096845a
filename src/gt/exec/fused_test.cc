// Fused nodes where there is no GPU: executors run their operators, and the text of their kernels,
// compiled for the host, computes what the operators compute.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "gt/base/error.h"
#include "gt/exec/fused_kernels.h"
#include "gt/exec/program.h"
#include "gt/exec/reference.h"
#include "gt/fusion/element_code.h"
#include "gt/fusion/kernel_source.h"
#include "gt/ir/builder.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/kernels/cuda_driver.h"
#include "gt/passes/framework/registry.h"
#include "gt/testing/host_kernels.h"
#include "gt/torch_bridge/convert.h"

namespace gt::fused_exec_test {
namespace {

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

// Operators that give the same bits on every machine, with views of all kinds between them.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed), graph_(std::make_unique<Graph>("random")) {
    for (int i = 0; i < 3; ++i) Input(DType::kFloat32, {Dim(4), Dim(6), Dim(16)});
    Input(DType::kBFloat16, {Dim(4), Dim(6), Dim(16)});
    Input(DType::kFloat32, {Dim(6), Dim(16)});
    Input(DType::kFloat32, {Dim(6), Dim(1)});
    index_ = graph_->AddInput(InputRole::kInput, "index",
                              ContiguousType(DType::kInt64, {}, {Dim(4)}, graph_->shapes()));
    while (graph_->node_count() < 30) Grow();
    for (int i = 0; i < 4; ++i) {
      graph_->AddOutput(OutputRole::kResult, fmt::format("y{}", i),
                        values_[values_.size() - 1 - Below(6)]);
    }
  }
  std::unique_ptr<Graph> Take() { return std::move(graph_); }

 private:
  size_t Below(size_t bound) { return random_() % bound; }
  void Input(DType dtype, Shape sizes) {
    values_.push_back(
        graph_->AddInput(InputRole::kInput, fmt::format("x{}", values_.size()),
                         ContiguousType(dtype, {}, std::move(sizes), graph_->shapes())));
  }
  Value* Any() {
    return values_[values_.size() - 1 -
                   Below(std::min<size_t>(values_.size(), Below(4) == 0 ? 100 : 6))];
  }
  NodeBuilder New(std::string_view op, Value* x) { return NodeBuilder(*graph_, op).Set("self", x); }
  void Keep(Value* value) {
    if (value->type().rank() > 0 && *value->type().numel().as_const() <= 8192)
      values_.push_back(value);
  }

  void Grow() {
    Value* x = Any();
    const Shape& sizes = x->type().sizes;
    const auto rank = static_cast<int64_t>(sizes.size());
    const auto dim = static_cast<int64_t>(Below(static_cast<size_t>(rank)));
    const int64_t size = *sizes[static_cast<size_t>(dim)].as_const();
    try {
      switch (Below(13)) {
        case 0:
        case 1:
          return Keep(New("aten::add.Tensor", x).Set("other", Any()).Result());
        case 2:
        case 3:
          return Keep(New("aten::mul.Tensor", x).Set("other", Any()).Result());
        case 4:
          return Keep(New("aten::neg", x).Result());
        case 5:
          return Keep(New("aten::_to_copy", x)
                          .Set("dtype", Below(2) == 0 ? DType::kFloat32 : DType::kBFloat16)
                          .Result());
        case 6:
          return Keep(
              New("aten::transpose.int", x).Set("dim0", Dim(dim)).Set("dim1", Dim(0)).Result());
        case 7:
          return Keep(New("aten::slice.Tensor", x)
                          .Set("dim", Dim(dim))
                          .Set("start", Dim(static_cast<int64_t>(Below(3))))
                          .Set("end", Dim(size))
                          .Set("step", Dim(1 + static_cast<int64_t>(Below(2))))
                          .Result());
        case 8:
          return Keep(New("aten::view", x)
                          .Set("size", Below(2) == 0
                                           ? Shape{x->type().numel()}
                                           : Shape{Dim(*x->type().numel().as_const() / 2), Dim(2)})
                          .Result());
        case 9: {
          Value* other = Any();
          return Keep(NodeBuilder(*graph_, "aten::cat")
                          .Set("tensors", std::vector<Value*>{x, other, x})
                          .Set("dim", Dim(dim))
                          .Result());
        }
        case 10:
          if (*sizes[0].as_const() < 4) return;
          return Keep(
              New("aten::index_select", x).Set("dim", Dim(0)).Set("index", index_).Result());
        case 11:
          return Keep(
              New("aten::clone", x).Set("memory_format", MemoryFormat::kContiguous).Result());
        default:
          return Keep(New("aten::unsqueeze", x).Set("dim", Dim(dim)).Result());
      }
    } catch (const Error&) {
      // The rule refused this combination; another will do.
    }
  }

  std::mt19937_64 random_;
  std::unique_ptr<Graph> graph_;
  std::vector<Value*> values_;
  Value* index_ = nullptr;
};

at::Tensor RandomTensor(const TensorType& type) {
  int64_t extent = 1;
  std::vector<int64_t> sizes, strides;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    sizes.push_back(*type.sizes[d].as_const());
    strides.push_back(*type.strides[d].as_const());
    extent += std::max<int64_t>(sizes.back() - 1, 0) * strides.back();
  }
  const at::Tensor numbers =
      type.dtype == DType::kInt64 ? at::randint(4, {extent}, at::kLong) : at::randn({extent});
  return numbers.to(ToTorch(type.dtype)).as_strided(sizes, strides);
}

std::vector<at::Tensor> RandomInputs(const Graph& graph) {
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) inputs.push_back(RandomTensor(input->value.type()));
  return inputs;
}

void ExpectSame(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(SameBits(expected[i], actual[i])) << "output " << i;
  }
}

TEST(Fused, RandomGraphsGiveTheSameBitsFusedAndNot) {
  int64_t groups = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    at::manual_seed(seed);
    std::unique_ptr<Graph> graph = RandomGraph(seed).Take();
    const std::vector<at::Tensor> inputs = RandomInputs(*graph);
    const std::vector<at::Tensor> expected = RunReference(*graph, inputs);
    for (const auto& pass : ParsePipeline("fuse{any_device=true}")) {
      pass->Run(*graph);
      groups += pass->counters()[0]->value();
    }
    Verify(*graph);
    EXPECT_EQ(Parse(Print(*graph))->Hash(), graph->Hash());
    ExpectSame(expected, RunReference(*graph, inputs));
    Program program(*graph);
    ExpectSame(expected, program.Run(inputs));
    ExpectSame(expected, program.Run(inputs));
  }
  EXPECT_GT(groups, 60) << "too few groups to prove anything";
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

struct HostKernel {
  const Graph* body;
  fusion::KernelSource source;
  std::string name;
};

// The function, and one without arguments that calls it for every thread.
std::string HostText(const HostKernel& kernel) {
  std::string text =
      kernel.source.text.substr(kernel.source.text.find("typedef unsigned Size;") + 23);
  text = Replaced(text, " " + kernel.source.name + "(", " " + kernel.name + "(");
  const size_t tensors = kernel.body->inputs().size() + kernel.body->outputs().size();
  std::string call =
      fmt::format("extern \"C\" void run_{0}(void** p, const unsigned* s) {{\n", kernel.name);
  call += fmt::format("  for (unsigned t = 0; t < s[{}]; ++t) {{\n", kernel.source.sizes.size());
  call += fmt::format("    blockIdx.x = t / {0}; threadIdx.x = t % {0};\n    {1}(",
                      fusion::kThreadsPerBlock, kernel.name);
  for (size_t i = 0; i < tensors; ++i) {
    const bool input = i < kernel.body->inputs().size();
    const TensorType& type =
        input ? kernel.body->inputs()[i]->value.type()
              : kernel.body->outputs()[i - kernel.body->inputs().size()]->value()->type();
    call += fmt::format("({}*)p[{}], ", fusion::StorageType(type.dtype), i);
  }
  for (size_t i = 0; i <= kernel.source.sizes.size(); ++i) {
    call += fmt::format("{}s[{}]", i == 0 ? "" : ", ", i);
  }
  return text + call + ");\n  }\n}\n";
}

// Index arithmetic, broadcasts, concatenations and lookups of generated kernels, without a GPU.
TEST(Fused, TheTextOfKernelsComputesWhatTheOperatorsCompute) {
  if (!testing::HasHostCompiler()) GTEST_SKIP() << "there is no compiler here";
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<HostKernel> kernels;
  for (uint64_t seed = 100; seed < 130; ++seed) {
    graphs.push_back(RandomGraph(seed).Take());
    for (const auto& pass : ParsePipeline("fuse{any_device=true}")) pass->Run(*graphs.back());
    for (const Node* node : graphs.back()->nodes()) {
      const Graph* body = FusedBody(*node);
      if (body == nullptr) continue;
      for (bool one_lane : {false, true}) {
        auto source = fusion::MakeKernelSource(*body, {.one_lane = one_lane});
        ASSERT_TRUE(source) << Print(*body);
        if (one_lane || source->lanes > 1) {
          kernels.push_back({body, std::move(*source), fmt::format("kernel_{}", kernels.size())});
        }
      }
    }
  }
  ASSERT_GT(kernels.size(), 40u);
  std::string text = testing::HostKernelPrelude();
  for (const HostKernel& kernel : kernels) text += HostText(kernel);
  const testing::HostLibrary library(text);
  ASSERT_EQ(library.error(), "");
  int vectors = 0;
  for (const HostKernel& kernel : kernels) {
    SCOPED_TRACE(kernel.source.text.substr(kernel.source.text.find("typedef unsigned Size;")));
    vectors += kernel.source.lanes > 1;
    at::manual_seed(3);
    const std::vector<at::Tensor> inputs = RandomInputs(*kernel.body);
    const std::vector<at::Tensor> expected = RunNested(*kernel.body, inputs, {});
    std::vector<at::Tensor> actual;
    std::vector<void*> pointers;
    for (const at::Tensor& input : inputs) pointers.push_back(input.data_ptr());
    for (const at::Tensor& output : expected) {
      actual.push_back(at::empty_strided(output.sizes(), output.strides(), output.options()));
      pointers.push_back(actual.back().data_ptr());
    }
    std::vector<unsigned> sizes;
    for (const Dim& size : kernel.source.sizes)
      sizes.push_back(static_cast<unsigned>(*size.as_const()));
    sizes.push_back(static_cast<unsigned>(*kernel.source.threads.as_const()));
    auto run =
        reinterpret_cast<void (*)(void**, const unsigned*)>(library.Find("run_" + kernel.name));
    ASSERT_NE(run, nullptr);
    run(pointers.data(), sizes.data());
    ExpectSame(expected, actual);
  }
  EXPECT_GT(vectors, 10);
}

TEST(Fused, WithoutADriverEveryNodeRunsOperatorByOperator) {
  if (CudaDriver::Get() != nullptr) GTEST_SKIP() << "there is a driver";
  std::unique_ptr<Graph> graph = RandomGraph(1).Take();
  for (const auto& pass : ParsePipeline("fuse{any_device=true}")) pass->Run(*graph);
  ASSERT_TRUE(HasFusedNodes(*graph));
  const FusedKernels kernels(*graph, at::kCPU, "");
  EXPECT_GT(kernels.report().nodes, 0);
  EXPECT_EQ(kernels.report().missing, "there is no driver");
  for (const Node* node : graph->nodes()) EXPECT_EQ(kernels.Find(*node), nullptr);
}

}  // namespace
}  // namespace gt::fused_exec_test
