// Memory policies and rematerialization beyond what their text tests show: the table, long chains,
// and random graphs.
#include <gtest/gtest.h>

#include <algorithm>
#include <unordered_map>

#include "gt/analysis/aliasing.h"
#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/memory/memory_policy.h"
#include "gt/passes/memory/rematerialize.h"
#include "gt/testing/random_graph.h"
#include "gt/testing/test_roles.h"

namespace gt::memory_passes_test {
namespace {

bool IsRecomputed(Recompute tag) {
  return tag == Recompute::kPreferRecompute || tag == Recompute::kMustRecompute;
}

// All-gathers are not kept, since their results are larger than what they are made of, nor are grouped
// products, whose results are the largest of an expert layer.
TEST(MemoryPolicy, KeepsWhatIsDearToCompute) {
  for (const char* name :
       {"aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention", "gt::flex_attention", "aten::max",
        "aten::topk", "_c10d_functional::reduce_scatter_tensor",
        "_c10d_functional::reduce_scatter_tensor_coalesced",
        "_c10d_functional::all_to_all_single"}) {
    EXPECT_NE(WhyKept(*FindOperator(name)), "") << name;
  }
  for (const char* name : {"aten::_grouped_mm", "aten::silu", "aten::native_dropout",
                           "_c10d_functional::all_gather_into_tensor"}) {
    EXPECT_EQ(WhyKept(*FindOperator(name)), "") << name;
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
  ApplyMemoryPolicy pass(
      {.policy = MemoryPolicy::kFull, .full_recompute_save_ops = {"layers.*.w1::aten::mm"}});
  EXPECT_EQ(pass.Spec(),
            "memory_policy{policy=full,full_recompute_save_ops=layers.*.w1::aten::mm}");
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
TEST(MemoryPolicy, SavesAfterLongChainsOfViews) {
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
  testing::DeclareLayers(*graph);
  ApplyMemoryPolicy({.policy = MemoryPolicy::kFull}).Run(*graph);
  EXPECT_EQ(base->meta().recompute, Recompute::kMustSave);
  EXPECT_EQ(value->producer()->meta().recompute, Recompute::kMustRecompute);
}

// Whether the value shows memory of an input, which is available throughout the step.
bool ShowsInput(const Value& value) {
  const Value* shown = &value;
  while (!shown->is_input() && shown->producer()->op().aliasing == Aliasing::kAlways) {
    shown = ViewedValue(*shown);
  }
  return shown->is_input();
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
      EXPECT_TRUE(viewed || used_by_backward < used_otherwise || used_by_backward < 0 ||
                  ShowsInput(*node->result(i)))
          << node->result(i)->name() << " is still kept\n"
          << Print(graph);
    }
  }
}

// Numbers what values compute: equal numbers for equal operators on equal things, in any graph
// shown to the same object. What a draw gives follows from its generator's state, which every draw
// moves on.
class Expressions {
 public:
  using ByName = std::unordered_map<std::string, size_t>;

  std::vector<size_t> OfOutputs(const Graph& graph) {
    AddAll(graph);
    std::vector<size_t> outputs;
    for (const auto& output : graph.outputs()) outputs.push_back(of_.at(output->value()));
    return outputs;
  }
  ByName OfValues(const Graph& graph) {
    AddAll(graph);
    ByName values;
    for (const auto& [value, number] : of_) values[value->name()] = number;
    return values;
  }

 private:
  static constexpr size_t kInputs = 100, kResults = 100;  // more than any graph or node here has
  struct Known {
    const Operator* op = nullptr;
    std::vector<Argument> args;
    std::vector<size_t> operands;
    size_t state = 0;         // of the generator, for draws
    bool next_state = false;  // the state after the draw, not what was drawn
    bool operator==(const Known&) const = default;
  };

  void AddAll(const Graph& graph) {
    of_.clear();
    generators_.clear();
    for (size_t i = 0; i < graph.inputs().size(); ++i) of_[&graph.inputs()[i]->value] = i;
    for (const Node* node : graph.nodes()) Add(*node);
  }

  void Add(const Node& node) {
    if (node.op().name == Name("gt::generator_state")) {
      of_[node.result()] = Generator(std::get<Device>(node.arg(0)));
    } else if (node.op().name == Name("gt::set_generator_state")) {
      size_t& state = Generator(std::get<Device>(node.arg(1)));
      of_[node.result()] = state;
      state = of_.at(node.operand(0));
    } else {
      Compute(node);
    }
  }

  void Compute(const Node& node) {
    Known one;
    one.op = &node.op();
    one.args.assign(node.args().begin(), node.args().end());
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      one.operands.push_back(of_.at(node.operand(i)));
    }
    if (node.op().random) {
      size_t& state = Generator(node.result()->type().device);
      one.state = state;
      Known behind = one;
      behind.next_state = true;
      state = Number(std::move(behind));
    }
    const size_t first = Number(std::move(one));
    for (int32_t i = 0; i < node.result_count(); ++i) {
      of_[node.result(i)] = first + static_cast<size_t>(i);
    }
  }

  // The state that it is in; before the first draw one that nothing computes.
  size_t& Generator(Device device) {
    auto [found, is_new] = generators_.try_emplace(DeviceName(device), 0);
    if (is_new) {
      Known seed;
      seed.state = 1 + static_cast<size_t>(device.kind);
      found->second = Number(std::move(seed));
    }
    return found->second;
  }

  size_t Number(Known one) {
    auto found = std::find(known_.begin(), known_.end(), one);
    if (found == known_.end()) found = known_.insert(known_.end(), std::move(one));
    return kInputs + kResults * static_cast<size_t>(found - known_.begin());
  }

  std::vector<Known> known_;
  std::unordered_map<const Value*, size_t> of_;
  std::unordered_map<std::string, size_t> generators_;  // by device
};

// Else the judge of the random graphs below would let anything pass.
TEST(MemoryPasses, ExpressionsTellDrawsApart) {
  Expressions expressions;
  auto outputs = [&expressions](std::initializer_list<std::string> nodes) {
    std::string text = "graph @g(%x: input \"x\" f32[4]) {\n";
    for (const std::string& node : nodes) text += node + "\n";
    text += "return result \"r\" %r, result \"s\" %s\n}\n";
    return expressions.OfOutputs(*Parse(text));
  };
  auto draw = [](const std::string& name) { return name + " = aten::bernoulli(%x) : f32[4]"; };
  const std::string read = "%g = gt::generator_state(device = \"cpu\") : u8[5056]";
  const std::string set = "%o = gt::set_generator_state(%g, device = \"cpu\") : u8[5056]";
  const std::string reset = "%p = gt::set_generator_state(%o, device = \"cpu\") : u8[5056]";

  const auto plain = outputs({draw("%r"), draw("%s")});
  EXPECT_NE(plain[0], plain[1]);
  const auto again = outputs({read, draw("%r"), set, draw("%s")});
  EXPECT_EQ(again, (std::vector<size_t>{plain[0], plain[0]}));
  const auto undisturbed = outputs({read, draw("%r"), set, draw("%a"), reset, draw("%s")});
  EXPECT_EQ(undisturbed, plain);
  EXPECT_NE(outputs({draw("%a"), draw("%r"), draw("%s")}), plain);
}

// What a graph computed before passes ran on it.
class Computed {
 public:
  explicit Computed(const Graph& graph)
      : outputs_(expressions_.OfOutputs(graph)), values_(expressions_.OfValues(graph)) {}

  // Outputs are the same, and so is every value that is still there.
  void ExpectSame(const Graph& graph) {
    EXPECT_EQ(expressions_.OfOutputs(graph), outputs_);
    for (const auto& [name, number] : expressions_.OfValues(graph)) {
      auto found = values_.find(name);
      if (found != values_.end()) EXPECT_EQ(number, found->second) << name << "\n" << Print(graph);
    }
  }

 private:
  Expressions expressions_;
  std::vector<size_t> outputs_;
  Expressions::ByName values_;
};

// The manager verifies the result and compares hashes with what the pass says it did.
bool RunManaged(Graph& graph, const std::string& passes) {
  testing::DeclareLayers(graph);
  PassManager manager(ParsePipeline(passes), {.write_reproducer = false});
  return manager.Run(graph).changed;
}

TEST(MemoryPasses, HoldOnRandomGraphs) {
  int copied = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    for (const char* policy : {"none", "default", "eager", "full"}) {
      SCOPED_TRACE(fmt::format("seed {}, policy {}", seed, policy));
      auto graph = testing::RandomGraph(seed, 40);
      Computed before(*graph);
      const std::string tag = fmt::format("memory_policy{{policy={}}}", policy);
      RunManaged(*graph, tag);
      EXPECT_FALSE(RunManaged(*graph, tag));
      copied += RunManaged(*graph, "rematerialize");
      EXPECT_FALSE(RunManaged(*graph, "rematerialize"));
      before.ExpectSame(*graph);
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
    Computed before(*graph);
    try {
      copied += RunManaged(*graph, "rematerialize");
      before.ExpectSame(*graph);
      CheckNoTaggedValueIsKept(*graph);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadMetadata) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(copied, 30);
  EXPECT_GT(refused, 20);
}

// Dropout in every layer of a stack, as models have it: what each mask's backward gets is what the
// forward drew, under every policy, though the draws are repeated last first.
TEST(MemoryPasses, RedrawEveryLayer) {
  constexpr int kLayers = 5;
  for (const char* policy : {"default", "eager", "full"}) {
    SCOPED_TRACE(policy);
    Graph graph("dropout");
    Value* x = graph.AddInput(InputRole::kInput, "x",
                              ContiguousType(DType::kFloat32, Device(), {4}, graph.shapes()));
    auto meta = [](int layer, Phase phase) {
      Meta meta;
      meta.module = Name(fmt::format("layers.{}", layer));
      meta.phase = phase;
      return meta;
    };
    std::vector<Value*> masks;
    for (int layer = 0; layer < kLayers; ++layer) {
      Node* dropout = NodeBuilder(graph, "aten::native_dropout")
                          .Set("input", x)
                          .Set("p", 0.25)
                          .Set("train", true)
                          .With(meta(layer, Phase::kForward))
                          .Insert();
      masks.push_back(dropout->result(1));
      x = NodeBuilder(graph, "aten::add.Tensor")
              .Set("self", x)
              .Set("other", dropout->result(0))
              .With(meta(layer, Phase::kForward))
              .Result();
    }
    for (int layer = kLayers - 1; layer >= 0; --layer) {
      x = NodeBuilder(graph, "aten::native_dropout_backward")
              .Set("grad_output", x)
              .Set("mask", masks[static_cast<size_t>(layer)])
              .Set("scale", 1.25)
              .With(meta(layer, Phase::kBackward))
              .Result();
    }
    graph.AddOutput(OutputRole::kResult, "gradient", x);

    Computed before(graph);
    const int64_t node_count = graph.node_count();
    EXPECT_TRUE(RunManaged(graph, fmt::format("memory_policy{{policy={}}},rematerialize", policy)));
    before.ExpectSame(graph);
    // For each layer a state that is read, set and set back, and the draw.
    EXPECT_EQ(graph.node_count() - node_count, 4 * kLayers);
  }
}

}  // namespace
}  // namespace gt::memory_passes_test
