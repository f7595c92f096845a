// Random graphs before and after passes: outputs keep their values, random draws keep their order,
// and no output starts to share memory with another output or with an input. A small interpreter
// that knows storages, offsets and strides is the judge.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"

namespace gt::property_test {
namespace {

using Storage = std::shared_ptr<std::vector<double>>;

struct Tensor {
  Storage storage;
  int64_t offset = 0;
  std::vector<int64_t> sizes, strides;

  int64_t numel() const {
    int64_t count = 1;
    for (int64_t size : sizes) count *= size;
    return count;
  }
  // The i-th element in row-major order.
  double& at(int64_t i) const {
    int64_t position = offset;
    for (size_t d = sizes.size(); d-- > 0; i /= sizes[d]) position += i % sizes[d] * strides[d];
    return (*storage)[static_cast<size_t>(position)];
  }
};

std::vector<int64_t> Numbers(const Shape& shape) {
  std::vector<int64_t> numbers;
  for (const Dim& dim : shape) numbers.push_back(*dim.as_const());
  return numbers;
}

Tensor Fresh(const TensorType& type) {
  Tensor tensor{nullptr, 0, Numbers(type.sizes), Numbers(type.strides)};
  int64_t length = 1;
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    length += (tensor.sizes[d] - 1) * tensor.strides[d];
  }
  tensor.storage = std::make_shared<std::vector<double>>(static_cast<size_t>(length));
  return tensor;
}

class Interpreter {
 public:
  explicit Interpreter(const Graph& graph) {
    for (const auto& input : graph.inputs()) {
      Tensor tensor = Fresh(input->value.type());
      for (int64_t i = 0; i < tensor.numel(); ++i) tensor.at(i) = Draw();
      values_[&input->value] = tensor;
      inputs_.push_back(tensor);
    }
    for (const Node* node : graph.nodes()) Run(*node);
    for (const auto& output : graph.outputs()) outputs_.push_back(values_.at(output->value()));
  }

  std::vector<std::vector<double>> OutputValues() const {
    std::vector<std::vector<double>> all;
    for (const Tensor& output : outputs_) {
      all.emplace_back();
      for (int64_t i = 0; i < output.numel(); ++i) all.back().push_back(output.at(i));
    }
    return all;
  }
  // For each pair of outputs, and each output and input, whether they share memory.
  std::vector<bool> Sharing() const {
    std::vector<bool> sharing;
    for (const Tensor& a : outputs_) {
      for (const Tensor& b : outputs_) sharing.push_back(a.storage == b.storage);
      for (const Tensor& b : inputs_) sharing.push_back(a.storage == b.storage);
    }
    return sharing;
  }

 private:
  double Draw() { return std::uniform_real_distribution<double>(-1, 1)(generator_); }

  void Run(const Node& node) {
    const std::string& op = node.op().name.str();
    const TensorType& type = node.result()->type();
    Tensor a = node.operand_count() > 0 ? values_.at(node.operand(0)) : Tensor();
    if (node.op().is_view() || op == "aten::_unsafe_view") {
      Dim offset = node.view_offsets().empty() ? Dim(0) : node.view_offsets()[0];
      values_[node.result()] = {a.storage, a.offset + *offset.as_const(), Numbers(type.sizes),
                                Numbers(type.strides)};
      return;
    }
    Tensor result = Fresh(type);
    for (int64_t i = 0; i < result.numel(); ++i) {
      if (op == "aten::neg") {
        result.at(i) = -a.at(i);
      } else if (op == "aten::relu") {
        result.at(i) = std::max(a.at(i), 0.0);
      } else if (op == "aten::mul.Tensor") {
        result.at(i) = a.at(i) * values_.at(node.operand(1)).at(i);
      } else if (op == "aten::clone" || op == "aten::_to_copy") {
        result.at(i) = a.at(i);
      } else if (op == "aten::bernoulli") {
        result.at(i) = Draw() < a.at(i);
      } else {
        ASSERT_EQ(op, "aten::zeros");
      }
    }
    values_[node.result()] = result;
  }

  std::mt19937_64 generator_{42};
  std::map<const Value*, Tensor> values_;
  std::vector<Tensor> inputs_, outputs_;
};

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
  ASSERT_EQ(actual.OutputValues(), expected.OutputValues()) << message();
  std::vector<bool> was = expected.Sharing();
  std::vector<bool> is = actual.Sharing();
  for (size_t i = 0; i < was.size(); ++i) {
    ASSERT_TRUE(was[i] || !is[i]) << "outputs share memory that did not: " << message();
  }
  ASSERT_FALSE(manager.Run(*graph).changed) << "a second run changes something: " << message();
}

TEST(PassProperties, HoldOnRandomGraphs) {
  for (const char* passes :
       {"dce", "canonicalize", "cse", "cse{cross_phase=all}", "dce,canonicalize,cse,dce"}) {
    for (uint64_t seed = 0; seed < 1000; ++seed) {
      CheckSeed(seed, passes);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace gt::property_test
