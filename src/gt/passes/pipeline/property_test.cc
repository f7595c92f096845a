// Random graphs before and after passes: outputs keep their values, random draws keep their order,
// and no output starts to share memory with another output or with an input.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"
#include "gt/testing/interpreter.h"

namespace gt::property_test {
namespace {

using testing::Interpreter;

// Grows a graph at random. Sizes are powers of two, so that views of views are often possible.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed), graph_(std::make_unique<Graph>("random")) {
    for (int i = 0; i < 2; ++i) {
      TensorType type = ContiguousType(DType::kFloat32, {}, {Dim(4), Dim(8)}, graph_->shapes());
      values_.push_back(graph_->AddInput(InputRole::kInput, fmt::format("x{}", i), type));
    }
    while (graph_->node_count() < 40) Grow();
    for (int i = 0; i < 6; ++i) {
      graph_->AddOutput(OutputRole::kResult, fmt::format("y{}", i), Pick());
    }
  }
  std::unique_ptr<Graph> Take() { return std::move(graph_); }

 private:
  int64_t Below(int64_t bound) {
    return std::uniform_int_distribution<int64_t>(0, bound - 1)(random_);
  }
  // Late values more often, so that chains form; early ones often enough to meet again.
  Value* Pick() {
    auto count = static_cast<int64_t>(values_.size());
    int64_t last = std::min<int64_t>(count, 6);
    return values_[static_cast<size_t>(Below(2) == 0 ? Below(count) : count - 1 - Below(last))];
  }

  void Grow() {
    Value* x = Pick();
    const TensorType& type = x->type();
    switch (Below(14)) {
      case 0:
        return Add("aten::neg", {x}, {OperandRef{0}});
      case 1:
        return Add("aten::relu", {x}, {OperandRef{0}});
      case 2: {
        Value* y = Pick();
        if (y->type().sizes != type.sizes) y = x;
        return Add("aten::mul.Tensor", {x, y}, {OperandRef{0}, OperandRef{1}});
      }
      case 3:
        return Add("aten::detach", {x}, {OperandRef{0}});
      case 4:
        return Add("aten::clone", {x}, {OperandRef{0}, {}});
      case 5:
        return Add("aten::_to_copy", {x}, {OperandRef{0}, {}, {}, {}, {}, false, {}});
      case 6:
        return Add("aten::bernoulli", {x}, {OperandRef{0}, {}});
      case 7:
        if (type.rank() != 2) return;
        return Add("aten::t", {x}, {OperandRef{0}});
      case 8: {
        if (type.rank() == 0) return;
        return Add("aten::transpose.int", {x},
                   {OperandRef{0}, Dim(Below(type.rank())), Dim(Below(type.rank()))});
      }
      case 9: {
        if (type.rank() == 0) return;
        int64_t dim = Below(type.rank());
        int64_t size = *type.sizes[static_cast<size_t>(dim)].as_const();
        int64_t start = Below(2) == 0 ? 0 : size / 2;
        return Add("aten::slice.Tensor", {x},
                   {OperandRef{0}, Dim(dim), Dim(start), Dim(size), Dim(1)});
      }
      case 10:
        return Add("aten::unsqueeze", {x}, {OperandRef{0}, Dim(Below(type.rank() + 1))});
      case 11:
        return Add("aten::squeeze", {x}, {OperandRef{0}});
      default: {
        static constexpr const char* kNames[] = {"aten::view", "aten::_unsafe_view"};
        return Add(kNames[Below(2)], {x}, {OperandRef{0}, RandomSizes(*type.numel().as_const())});
      }
    }
  }

  Shape RandomSizes(int64_t numel) {
    Shape sizes;
    while (numel > 1 && sizes.size() < 3) {
      int64_t size = int64_t{1} << Below(4);
      if (size > numel) size = numel;
      sizes.emplace_back(size);
      numel /= size;
    }
    sizes.emplace_back(Below(3) == 0 ? -1 : numel);
    return sizes;
  }

  void Add(const char* op, std::vector<Value*> operands, std::vector<Argument> args) {
    Graph::NodeSpec spec;
    spec.op = FindOperator(op);
    spec.operands = std::move(operands);
    spec.args = std::move(args);
    if (graph_->node_count() > 25) spec.meta.phase = Phase::kBackward;
    try {
      values_.push_back(graph_->Insert(std::move(spec))->result());
    } catch (const Error&) {
      // A view that does not exist; another will.
    }
  }

  std::mt19937_64 random_;
  std::unique_ptr<Graph> graph_;
  std::vector<Value*> values_;
};

void CheckSeed(uint64_t seed, const std::string& passes) {
  auto graph = RandomGraph(seed).Take();
  Verify(*graph);
  std::string before = Print(*graph);
  Interpreter expected(*graph);
  PassManager manager(ParsePipeline(passes), {.write_reproducer = false});
  manager.Run(*graph);
  Interpreter actual(*graph);
  auto message = [&] {
    return fmt::format("seed {}, passes {}\n{}\n--- became ---\n{}", seed, passes, before,
                       Print(*graph));
  };
  const auto difference = DifferenceOf(expected, actual);
  ASSERT_FALSE(difference.has_value()) << *difference << ": " << message();
  // With less memory in use, more can be fused.
  if (passes.starts_with("fuse")) return;
  ASSERT_FALSE(manager.Run(*graph).changed) << "a second run changes something: " << message();
}

TEST(PassProperties, HoldOnRandomGraphs) {
  for (const char* passes : {"dce", "canonicalize", "cse", "cse{cross_phase=all}",
                             "dce,canonicalize,cse,dce", "fuse{any_device=true}"}) {
    for (uint64_t seed = 0; seed < 1000; ++seed) {
      CheckSeed(seed, passes);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gt::property_test
