// Memory policies and rematerialization beyond what their text tests show: the table, long chains,
// and random graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <unordered_map>

#include "gt/base/error.h"
#include "gt/ir/random_graph_test_util.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/manager.h"
#include "gt/passes/memory_policy.h"
#include "gt/passes/registry.h"
#include "gt/passes/rematerialize.h"

namespace gt {
namespace {

using testing::NodeBuilder;

bool IsRecomputed(Recompute tag) {
  return tag == Recompute::kPreferRecompute || tag == Recompute::kMustRecompute;
}

TEST(MemoryPolicy, KeepsOperatorsThatExist) {
  for (const KeptOperator& kept : KeptOperators()) {
    EXPECT_NE(FindOperator(kept.name), nullptr) << kept.name;
    EXPECT_FALSE(kept.why.empty()) << kept.name;
  }
}

TEST(MemoryPolicy, SelectorsMatchModuleAndOperator) {
  SaveSelector selector = ParseSaveSelector(" layers.*.w1 :: aten::mm ");
  EXPECT_EQ(selector.modules, "layers.*.w1");
  EXPECT_EQ(selector.op, FindOperator("aten::mm"));
  EXPECT_EQ(ParseSaveSelector("**::aten.max.dim").op, FindOperator("aten::max.dim"));
  for (const char* text : {"", "::", "a::", "::b", "a:b", "a::aten::wait", "a::aten::t",
                           "a::_c10d_functional::wait_tensor", "a::mm"}) {
    EXPECT_THROW(ParseSaveSelector(text), Error) << text;
  }
}

TEST(MemoryPolicy, SpecIsReadBack) {
  ApplyMemoryPolicy pass({.policy = MemoryPolicy::kFull, .save = {"layers.*.w1::aten::mm"}});
  EXPECT_EQ(pass.Spec(), "memory_policy{policy=full,save=layers.*.w1::aten::mm}");
  EXPECT_EQ(MakePass(pass.Spec())->Spec(), pass.Spec());
}

// x -> neg -> neg -> ... and a backward that uses the last one, `length` nodes on.
std::unique_ptr<Graph> Chain(int length) {
  auto graph = std::make_unique<Graph>("chain");
  Value* value = graph->AddInput(InputRole::kInput, "x",
                                 ContiguousType(DType::kFloat32, Device(), {4}, graph->shapes()));
  for (int i = 0; i < length; ++i) {
    value = NodeBuilder(*graph, "aten::neg").Set("self", value).Result();
  }
  Meta backward;
  backward.phase = Phase::kBackward;
  value = NodeBuilder(*graph, "aten::exp").Set("self", value).With(backward).Result();
  graph->AddOutput(OutputRole::kResult, "g", value);
  return graph;
}

TEST(Rematerialize, FollowsChainsOfAnyLength) {
  constexpr int kLength = 50'000;
  auto graph = Chain(kLength);
  ApplyMemoryPolicy({.policy = MemoryPolicy::kFull}).Run(*graph);
  EXPECT_TRUE(Rematerialize().Run(*graph));
  EXPECT_EQ(graph->node_count(), kLength + 1);
  EXPECT_EQ(graph->first()->meta().phase, Phase::kBackward);
  Verify(*graph);
}

// Views of views that many users of a later layer show are walked once, not once for each user.
TEST(MemoryPolicy, SavesBehindLongChainsOfViews) {
  constexpr int kLength = 10'000;
  auto graph = std::make_unique<Graph>("views");
  Meta first, second;
  first.module = Name("layers.0");
  second.module = Name("layers.1");
  Value* value = graph->AddInput(InputRole::kInput, "x",
                                 ContiguousType(DType::kFloat32, Device(), {4}, graph->shapes()));
  value = NodeBuilder(*graph, "aten::neg").Set("self", value).With(first).Result();
  Node* base = value->producer();
  std::vector<Value*> views;
  for (int i = 0; i < kLength; ++i) {
    value = NodeBuilder(*graph, "aten::detach").Set("self", value).With(first).Result();
    views.push_back(value);
  }
  for (Value* view : views)
    NodeBuilder(*graph, "aten::neg").Set("self", view).With(second).Insert();
  ApplyMemoryPolicy({.policy = MemoryPolicy::kFull}).Run(*graph);
  EXPECT_EQ(base->meta().recompute, Recompute::kMustSave);
  EXPECT_EQ(value->producer()->meta().recompute, Recompute::kMustRecompute);
}

// What the tags mean: no backward node uses a tagged forward value beyond the last use that the
// forward itself makes of it, or the step of it.
void CheckNoTaggedValueIsKept(Graph& graph) {
  graph.NumberNodes();
  for (const Node* node : graph.nodes()) {
    if (node->meta().phase != Phase::kForward || !IsRecomputed(node->meta().recompute)) continue;
    for (int32_t i = 0; i < node->result_count(); ++i) {
      int32_t used_by_backward = -1, used_otherwise = -1;
      bool viewed = false;
      for (const Use& use : node->result(i)->uses()) {
        if (use.node() == nullptr) {
          used_otherwise = static_cast<int32_t>(graph.node_count());
        } else if (use.node()->meta().phase == Phase::kBackward) {
          used_by_backward = std::max(used_by_backward, use.node()->number());
        } else {
          used_otherwise = std::max(used_otherwise, use.node()->number());
          viewed |= use.node()->op().is_view();  // then the memory may be held for longer
        }
      }
      EXPECT_TRUE(viewed || used_by_backward < used_otherwise || used_by_backward < 0)
          << node->result(i)->name() << " is still kept\n"
          << Print(graph);
    }
  }
}

// Numbers what values compute: equal numbers for equal operators on equal things, in any graph
// shown to the same object. Draws of a graph count in order.
class Expressions {
 public:
  std::vector<size_t> OfOutputs(const Graph& graph) {
    std::unordered_map<const Value*, size_t> of;
    for (size_t i = 0; i < graph.inputs().size(); ++i) of[&graph.inputs()[i]->value] = i;
    int64_t draws = 0;
    for (const Node* node : graph.nodes()) {
      Known one{&node->op(), {node->args().begin(), node->args().end()}, {}, 0};
      for (int32_t i = 0; i < node->operand_count(); ++i)
        one.operands.push_back(of.at(node->operand(i)));
      if (node->op().random) one.draw = ++draws;
      const size_t first = kInputs + kResults * Number(std::move(one));
      for (int32_t i = 0; i < node->result_count(); ++i)
        of[node->result(i)] = first + static_cast<size_t>(i);
    }
    std::vector<size_t> outputs;
    for (const auto& output : graph.outputs()) outputs.push_back(of.at(output->value()));
    return outputs;
  }

 private:
  static constexpr size_t kInputs = 100, kResults = 100;  // more than any graph or node here has
  struct Known {
    const Operator* op;
    std::vector<Argument> args;
    std::vector<size_t> operands;
    int64_t draw;
    bool operator==(const Known&) const = default;
  };
  size_t Number(Known one) {
    auto found = std::find(known_.begin(), known_.end(), one);
    if (found == known_.end()) found = known_.insert(known_.end(), std::move(one));
    return static_cast<size_t>(found - known_.begin());
  }
  std::vector<Known> known_;
};

// The manager verifies the result and compares hashes with what the pass says it did.
bool RunManaged(Graph& graph, const std::string& passes) {
  PassManager manager(ParsePipeline(passes), {.write_reproducer = false});
  return manager.Run(graph).changed;
}

TEST(MemoryPasses, HoldOnRandomGraphs) {
  int copied = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    for (const char* policy : {"none", "default", "eager", "full"}) {
      SCOPED_TRACE(fmt::format("seed {}, policy {}", seed, policy));
      auto graph = testing::RandomGraph(seed, 40);
      Expressions expressions;
      const std::vector<size_t> outputs = expressions.OfOutputs(*graph);
      const std::string tag = fmt::format("memory_policy{{policy={}}}", policy);
      RunManaged(*graph, tag);
      EXPECT_FALSE(RunManaged(*graph, tag));
      copied += RunManaged(*graph, "rematerialize");
      EXPECT_FALSE(RunManaged(*graph, "rematerialize"));
      EXPECT_EQ(expressions.OfOutputs(*graph), outputs);
      CheckNoTaggedValueIsKept(*graph);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(copied, 60);  // else the graphs prove nothing
}

// Tags that no policy would give: an error where a node cannot be repeated, else a valid graph.
TEST(MemoryPasses, RematerializeWithstandsAnyTags) {
  int copied = 0, refused = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    auto graph = testing::RandomGraph(seed, 30);
    try {
      copied += RunManaged(*graph, "rematerialize");
      CheckNoTaggedValueIsKept(*graph);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadMetadata) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(copied, 30);
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace gt
