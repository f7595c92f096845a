// CPU offload of random steps, and its options. cpu_offload.gtir says which values leave, when they
// leave and return, and what the backward then reads.
#include "gt/passes/memory/cpu_offload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "gt/analysis/aliasing.h"
#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/pipeline/pipeline.h"
#include "gt/testing/random_graph.h"
#include "gt/testing/test_roles.h"

namespace gt::cpu_offload_test {
namespace {

constexpr double KiB(int count) { return count / (1024.0 * 1024.0); }  // in GiB

struct Result {
  std::unique_ptr<Graph> graph;
  PassRun run;

  int64_t Count(std::string_view counter) const {
    for (const auto& [name, value] : run.counters) {
      if (name == counter) return value;
    }
    ADD_FAILURE() << "no counter " << counter;
    return -1;
  }
};

PassRun RunManaged(Graph& graph, const CpuOffloadOptions& options) {
  testing::DeclareLayers(graph);
  PassList passes;
  passes.push_back(std::make_unique<CpuOffload>(options));
  // The manager verifies the result and compares hashes with what the pass says it did.
  PassManager manager(std::move(passes), {.write_reproducer = false});
  return manager.Run(graph).runs.at(0);
}

Result Offload(std::unique_ptr<Graph> graph, const CpuOffloadOptions& options) {
  Verify(*graph);
  Result result{std::move(graph), {}};
  result.run = RunManaged(*result.graph, options);
  EXPECT_FALSE(RunManaged(*result.graph, options).changed) << "a second run changes something";
  EXPECT_EQ(Parse(Print(*result.graph))->Hash(), result.graph->Hash());
  return result;
}

TEST(CpuOffload, OptionsAreReadBack) {
  CpuOffload pass({.cpu_offload_budget_gb = 0.5,
                   .cpu_offload_defer_n_layers = 2,
                   .cpu_offload_prefetch_n_layers = 0});
  EXPECT_EQ(pass.Spec(),
            "cpu_offload{cpu_offload_budget_gb=0.5,cpu_offload_defer_n_layers=2,cpu_offload_"
            "prefetch_n_layers=0}");
  EXPECT_EQ(MakePass(pass.Spec())->Spec(), pass.Spec());
  for (const char* option : {"budget_gb", "defer_layers", "prefetch_layers"}) {
    EXPECT_THROW(MakePass(fmt::format("cpu_offload{{{}=-1}}", option)), Error) << option;
  }
}

TEST(CpuOffload, PolicySacAndOffloadRunsItBehindRematerialization) {
  PipelineOptions options;
  options.memory.policy = MemoryPolicy::kSacAndOffload;
  options.offload.cpu_offload_budget_gb = 7;
  EXPECT_EQ(PrintPipeline(DefaultPipeline(options)),
            "dce,canonicalize,cse,dce,memory_policy{policy=sac_and_offload},rematerialize,"
            "cpu_offload{cpu_offload_budget_gb=7.0},reshard_after_forward");
  options.memory.policy = MemoryPolicy::kDefault;
  EXPECT_EQ(PrintPipeline(DefaultPipeline(options)).find("cpu_offload"), std::string::npos);
}

// Random steps: four layers of forward, a loss, and their backward, with nodes of other phases in
// between, and views of everything.
class RandomStep {
 public:
  explicit RandomStep(uint64_t seed) : random_(seed), graph_(std::make_unique<Graph>("step")) {
    const TensorType type = ContiguousType(DType::kFloat32, {}, {64, 64}, graph_->shapes());
    values_.push_back(graph_->AddInput(InputRole::kInput, "x", type));
    for (int layer = 0; layer < 4; ++layer) AddNodes(layer, Phase::kForward);
    AddNodes(-1, Phase::kLoss);
    for (int layer = 3; layer >= 0; --layer) AddNodes(layer, Phase::kBackward);
    for (int i = 0; i < 3; ++i) graph_->AddOutput(OutputRole::kResult, "y", values_.rbegin()[i]);
    if (OneIn(3)) graph_->AddOutput(OutputRole::kResult, "y", Pick());
  }
  std::unique_ptr<Graph> Take() { return std::move(graph_); }

 private:
  bool OneIn(uint64_t n) { return random_() % n == 0; }
  Value* Pick() {
    const size_t recent = std::min<size_t>(values_.size(), OneIn(2) ? 5 : values_.size());
    return values_[values_.size() - 1 - random_() % recent];
  }

  void AddNodes(int layer, Phase phase) {
    for (int i = 0; i < 8; ++i) {
      Meta meta;
      if (layer >= 0 && !OneIn(8)) meta.module = Name(fmt::format("layers.{}", layer));
      meta.phase = OneIn(20) ? static_cast<Phase>(random_() % 3) : phase;
      if (OneIn(2)) meta.recompute = Recompute::kMustSave;
      AddNode(meta);
    }
  }

  void AddNode(const Meta& meta) {
    static constexpr const char* kOps[] = {"aten::neg", "aten::exp",    "aten::mul.Tensor",
                                           "aten::t",   "aten::detach", "aten::split.Tensor"};
    const std::string_view op = kOps[random_() % std::size(kOps)];
    Value* value = Pick();
    NodeBuilder builder(*graph_, op);
    builder.With(meta).Set("self", value);
    if (op == "aten::mul.Tensor") builder.Set("other", value);
    if (op == "aten::split.Tensor") builder.Set("split_size", Dim(32));
    Node* node = builder.Insert();
    for (int32_t i = 0; i < node->result_count(); ++i) values_.push_back(node->result(i));
  }

  std::mt19937_64 random_;
  std::unique_ptr<Graph> graph_;
  std::vector<Value*> values_;
};

// What each output computes, as a number; transfers hand through what they move.
std::vector<size_t> OutputExpressions(const Graph& graph) {
  std::map<std::vector<size_t>, size_t> known;
  std::map<const Value*, size_t> of = {{&graph.inputs()[0]->value, 0}};
  for (const Node* node : graph.nodes()) {
    if (node->op().transfer != Transfer::kNone) {
      of[node->result()] = of.at(node->operand(0));
      continue;
    }
    std::vector<size_t> expression = {reinterpret_cast<size_t>(&node->op())};
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      expression.push_back(of.at(node->operand(i)));
    }
    const size_t number = known.try_emplace(expression, known.size()).first->second;
    for (int32_t i = 0; i < node->result_count(); ++i) {
      of[node->result(i)] = 1 + 10 * number + static_cast<size_t>(i);
    }
  }
  std::vector<size_t> outputs;
  for (const auto& output : graph.outputs()) outputs.push_back(of.at(output->value()));
  return outputs;
}

// Nothing of forward or loss reads the memory of a value that has left, nor does the backward
// through the value or through views that the forward made of it.
void CheckMemoryIsFree(Graph& graph) {
  graph.NumberNodes();
  std::map<const Value*, int32_t> gone_behind;
  for (const Node* node : graph.nodes()) {
    if (node->op().transfer == Transfer::kWait && node->meta().phase == Phase::kForward) {
      gone_behind[node->operand(1)] = node->number();
    }
  }
  for (const Node* node : graph.nodes()) {
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      for (const Value* value = node->operand(i); value != nullptr; value = ViewedValue(*value)) {
        // A backward node made this view before the value left.
        if (!value->is_input() && value->producer()->meta().phase == Phase::kBackward) break;
        auto found = gone_behind.find(value);
        if (found == gone_behind.end()) continue;
        EXPECT_LE(node->number(), found->second) << Print(*node) << "\nin\n" << Print(graph);
      }
    }
  }
}

TEST(CpuOffload, HoldsOnRandomSteps) {
  int64_t tensors = 0, views = 0, skipped = 0;
  for (uint64_t seed = 0; seed < 600 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    auto graph = RandomStep(seed).Take();
    const std::vector<size_t> outputs = OutputExpressions(*graph);
    const CpuOffloadOptions options = {
        .cpu_offload_budget_gb = seed % 2 == 0 ? 0 : KiB(20),
        .cpu_offload_defer_n_layers = static_cast<int64_t>(seed / 2 % 3),
        .cpu_offload_prefetch_n_layers = static_cast<int64_t>(seed / 6 % 3)};
    Result result = Offload(std::move(graph), options);
    EXPECT_EQ(OutputExpressions(*result.graph), outputs) << Print(*result.graph);
    CheckMemoryIsFree(*result.graph);
    tensors += result.Count("tensors");
    views += result.Count("views");
    skipped += result.Count("skipped_budget");
  }
  EXPECT_GT(tensors, 300);  // else the steps prove nothing
  EXPECT_GT(views, 100);
  EXPECT_GT(skipped, 30);
}

// Graphs of every operator and argument kind, with tags and phases in any order.
TEST(CpuOffload, WithstandsAnyGraph) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    auto graph = testing::RandomGraph(seed, 40);
    RunManaged(*graph, {});
    EXPECT_FALSE(RunManaged(*graph, {}).changed);
  }
}

}  // namespace
}  // namespace gt::cpu_offload_test
