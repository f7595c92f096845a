// Chunking of random steps: rows end where they would, each once, whatever the order of modules,
// and gradients have all their parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "gt/passes/chunk/chunk.h"
#include "gt/passes/chunk/chunk_test_util.h"
#include "gt/testing/random_graph.h"

namespace gt::chunk_property_test {
namespace {

using testing::RunChunk;

// Modules that take turns, forward and then backward: three of them are cut, "norm" is not and may
// turn rows around. Sums over rows are parts of gradients.
class RandomStep {
 public:
  RandomStep(uint64_t seed, int64_t extent)
      : random_(seed), graph_(std::make_unique<Graph>("step")) {
    const Dim rows = Dim::Symbol(graph_->shapes().AddInputSymbol(extent));
    for (int i = 0; i < 2; ++i) {
      AddInput(InputRole::kInput, fmt::format("x{}", i), {rows, 8});
      values_.push_back(&graph_->inputs().back()->value);
    }
    for (int i = 0; i < kParameters; ++i)
      AddInput(InputRole::kParameter, fmt::format("p{}", i), {8});
    for (uint64_t i = 0; i < 20; ++i) AddRows(MetaOf(i < 4 ? i : random_(), Phase::kForward));
    for (int i = 0; i < 20; ++i) {
      AddRows(MetaOf(random_(), Phase::kBackward));
      if (OneIn(2)) AddGradient();
    }
    for (int i = 0; i < 3; ++i) graph_->AddOutput(OutputRole::kResult, "y", values_.rbegin()[i]);
    for (const auto& [parameter, gradient] : gradients_) {
      graph_->AddOutput(OutputRole::kGradient, parameter, gradient);
    }
  }
  std::unique_ptr<Graph> Take() { return std::move(graph_); }

 private:
  static constexpr int kParameters = 3;

  bool OneIn(uint64_t n) { return random_() % n == 0; }
  Value* Pick() {
    return values_[values_.size() - 1 - random_() % std::min<size_t>(values_.size(), 8)];
  }

  void AddInput(InputRole role, const std::string& name, Shape sizes) {
    graph_->AddInput(role, name, ContiguousType(DType::kFloat32, {}, sizes, graph_->shapes()));
  }

  static Meta MetaOf(uint64_t module, Phase phase) {
    Meta meta;
    meta.module = Name(module % 4 == 3 ? "norm" : fmt::format("layers.{}", module % 4));
    meta.phase = phase;
    meta.ep_role = EpRole::kCompute;
    return meta;
  }

  void AddRows(const Meta& meta) {
    if (meta.module == Name("norm") && OneIn(2)) {
      Add(NodeBuilder(*graph_, "aten::flip").Set("self", Pick()).Set("dims", Shape{0}), meta);
    } else if (OneIn(2)) {
      Add(NodeBuilder(*graph_, "aten::mul.Tensor").Set("self", Pick()).Set("other", Pick()), meta);
    } else {
      Add(NodeBuilder(*graph_, OneIn(2) ? "aten::neg" : "aten::exp").Set("self", Pick()), meta);
    }
  }
  void Add(NodeBuilder& builder, const Meta& meta) {
    values_.push_back(builder.With(meta).Result());
  }

  void AddGradient() {
    const Meta meta = MetaOf(random_(), Phase::kBackward);
    Value* sum = NodeBuilder(*graph_, "aten::sum.dim_IntList")
                     .Set("self", Pick())
                     .Set("dim", Shape{0})
                     .With(meta)
                     .Result();
    Value*& gradient = gradients_[fmt::format("p{}", random_() % kParameters)];
    if (gradient == nullptr) {
      gradient = sum;
      return;
    }
    gradient = NodeBuilder(*graph_, "aten::add.Tensor")
                   .Set("self", gradient)
                   .Set("other", sum)
                   .With(OneIn(3) ? MetaOf(random_(), Phase::kBackward) : meta)
                   .Result();
  }

  std::mt19937_64 random_;
  std::unique_ptr<Graph> graph_;
  std::vector<Value*> values_;
  std::map<std::string, Value*> gradients_;
};

// What a graph computes: for each value the numbers of its rows' expressions, and for a sum those
// of all rows that were added, sorted.
class Rows {
 public:
  std::vector<std::vector<size_t>> OfOutputs(const Graph& graph) {
    of_.clear();
    const auto extent = static_cast<size_t>(graph.shapes().Hint(Dim::Symbol(0)));
    for (size_t i = 0; i < 2; ++i) {
      auto& rows = of_[&graph.inputs()[i]->value];
      for (size_t row = 0; row < extent; ++row) rows.push_back(100 * i + row);
    }
    for (const Node* node : graph.nodes()) Add(graph, *node);
    std::vector<std::vector<size_t>> outputs;
    for (const auto& output : graph.outputs()) outputs.push_back(of_.at(output->value()));
    return outputs;
  }

 private:
  void Add(const Graph& graph, const Node& node) {
    const std::string& op = node.op().name.str();
    std::vector<size_t> first = of_.at(node.operand(0));
    if (op == "aten::split_with_sizes") {
      auto from = first.begin();
      for (int32_t i = 0; i < node.result_count(); ++i) {
        auto to = from + graph.shapes().Hint(node.result(i)->type().sizes[0]);
        of_[node.result(i)].assign(from, to);
        from = to;
      }
      return;
    }
    std::vector<size_t>& rows = of_[node.result()];
    rows = std::move(first);
    if (op == "aten::cat" || op == "aten::add.Tensor") {
      for (int32_t i = 1; i < node.operand_count(); ++i) {
        const std::vector<size_t>& more = of_.at(node.operand(i));
        rows.insert(rows.end(), more.begin(), more.end());
      }
    }
    if (op == "aten::sum.dim_IntList" || op == "aten::add.Tensor") {
      std::sort(rows.begin(), rows.end());
    } else if (op == "aten::flip") {
      std::reverse(rows.begin(), rows.end());
    } else if (op != "aten::cat") {
      for (size_t row = 0; row < rows.size(); ++row) {
        std::vector<size_t> expression = {reinterpret_cast<size_t>(&node.op())};
        for (int32_t i = 0; i < node.operand_count(); ++i) {
          expression.push_back(of_.at(node.operand(i))[row]);
        }
        rows[row] = 1000 + known_.try_emplace(expression, known_.size()).first->second;
      }
    }
  }

  std::map<std::vector<size_t>, size_t> known_;
  std::map<const Value*, std::vector<size_t>> of_;
};

TEST(ChunkProperty, RowsAndGradientsOfRandomStepsAreKept) {
  int64_t copies = 0, handed_on = 0, sums = 0, splits = 0;
  for (uint64_t seed = 0; seed < 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const auto extent = static_cast<int64_t>(2 + seed % 6);
    auto graph = RandomStep(seed, extent).Take();
    Rows rows;
    const auto before = rows.OfOutputs(*graph);
    const PassRun run =
        RunChunk(*graph, {.num_chunks = 2 + static_cast<int64_t>(seed) % (extent - 1),
                          .disable_early_grad_accumulation = seed % 2 == 0,
                          .keep_chunks_across_roots = seed % 3 != 0});
    EXPECT_EQ(rows.OfOutputs(*graph), before) << Print(*graph);
    for (const auto& [name, value] : run.counters) {
      if (name == "copies") copies += value;
      if (name == "handed_on") handed_on += value;
      if (name == "sums") sums += value;
      if (name == "splits") splits += value;
    }
  }
  EXPECT_GT(copies, 10'000);  // else the steps prove nothing
  EXPECT_GT(handed_on, 1'000);
  EXPECT_GT(sums, 300);
  EXPECT_GT(splits, 1'000);
}

}  // namespace
}  // namespace gt::chunk_property_test
