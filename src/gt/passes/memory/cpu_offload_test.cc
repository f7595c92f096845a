// CPU offload: which values leave, when they go and come back, and what the backward then reads.
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

namespace gt::cpu_offload_test {
namespace {

using testing::NodeBuilder;

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
  // What nodes compute, in order, by the names of their first results.
  std::string Order() const {
    std::vector<std::string> names;
    for (const Node* node : graph->nodes()) names.push_back(node->result()->name());
    return Join(names, " ");
  }
  const Node& NodeOf(std::string_view value) const {
    const Value* found = graph->FindValue(value);
    GT_CHECK(found != nullptr, "no value {} in\n{}", value, Print(*graph));
    return *found->producer();
  }
  std::string OperandsOf(std::string_view value) const {
    std::vector<std::string> names;
    const Node& node = NodeOf(value);
    for (int32_t i = 0; i < node.operand_count(); ++i) names.push_back(node.operand(i)->name());
    return Join(names, " ");
  }
  bool Leaves(std::string_view value) const {
    return graph->FindValue(std::string(value) + "_offload") != nullptr;
  }
};

PassRun RunManaged(Graph& graph, const CpuOffloadOptions& options) {
  PassList passes;
  passes.push_back(std::make_unique<CpuOffload>(options));
  // The manager verifies the result and compares hashes with what the pass says it did.
  PassManager manager(std::move(passes), {.write_reproducer = false});
  return manager.Run(graph).runs.at(0);
}

Result Offload(std::unique_ptr<Graph> graph, const CpuOffloadOptions& options = {}) {
  Verify(*graph);
  Result result{std::move(graph), {}};
  result.run = RunManaged(*result.graph, options);
  EXPECT_FALSE(RunManaged(*result.graph, options).changed) << "a second run changes something";
  EXPECT_EQ(Parse(Print(*result.graph))->Hash(), result.graph->Hash());
  return result;
}
Result Offload(const std::string& text, const CpuOffloadOptions& options = {}) {
  return Offload(Parse(text), options);
}

constexpr std::string_view kSave = R"({module = "layers.0", recompute = must_save})";
constexpr std::string_view kForward = R"({module = "layers.0"})";
constexpr std::string_view kBackward = R"({module = "layers.0", phase = backward})";

// Layers of two nodes, %a0 and %h0 and so on. Each %a is kept for its layer's backward, %g.
std::string Layers(int count) {
  std::string forward, backward;
  std::string below = "x", above = "gl";
  for (int i = 0; i < count; ++i) {
    forward += fmt::format(
        "  %a{0} = aten::neg(%{1}) : f32[32, 32] {{module = \"layers.{0}.wq\", recompute = "
        "must_save}}\n"
        "  %h{0} = aten::exp(%a{0}) : f32[32, 32] {{module = \"layers.{0}.wo\"}}\n",
        i, below);
    below = fmt::format("h{}", i);
  }
  for (int i = count - 1; i >= 0; --i) {
    backward += fmt::format(
        "  %g{0} = aten::mul.Tensor(%{1}, %a{0}) : f32[32, 32] {{module = \"layers.{0}.wq\", phase "
        "= backward}}\n",
        i, above);
    above = fmt::format("g{}", i);
  }
  return fmt::format(
      "graph @step(%x: input \"x\" f32[32, 32]) {{\n{}"
      "  %n = aten::relu(%{}) : f32[32, 32] {{module = \"norm\"}}\n"
      "  %l = aten::sum(%n) : f32[] {{phase = loss}}\n"
      "  %gl = aten::mul.Tensor(%n, %l) : f32[32, 32] {{module = \"norm\", phase = backward}}\n"
      "{}  return loss \"loss\" %l, result \"g\" %g0\n}}\n",
      forward, below, backward);
}

// A layer 0 made of these lines, a layer 1 behind it, a loss %l, and these lines of backward, which
// compute %g.
std::string TwoLayers(std::string_view forward, std::string_view backward,
                      std::string_view outputs = "") {
  return fmt::format(
      "graph @step(%x: input \"x\" f32[32, 32], %w: param \"w\" f32[32, 32]) {{\n  {}\n"
      "  %z = aten::neg(%x) : f32[32, 32] {{module = \"layers.1\"}}\n"
      "  %l = aten::sum(%z) : f32[] {{phase = loss}}\n  {}\n"
      "  return loss \"loss\" %l, result \"g\" %g{}\n}}\n",
      forward, backward, outputs);
}
const std::string kUse = fmt::format("%g = aten::mul.Tensor(%a, %l) : f32[32, 32] {}", kBackward);

TEST(CpuOffload, SendsEachLayerAwayAndBringsItBackAheadOfItsUse) {
  Result result = Offload(Layers(3));
  // The last layer stays; %a1 starts back in front of layer 2, %a0 in front of layer 1.
  EXPECT_EQ(result.Order(),
            "a0 a0_offload h0 a1 a1_offload h1 a0_host a2 h2 a1_host n l gl "
            "a1_reload g2 a0_reload a1_back g1 a0_back g0");
  EXPECT_EQ(result.OperandsOf("a0_offload"), "a0");
  EXPECT_EQ(result.OperandsOf("a0_host"), "a0_offload a0");
  EXPECT_EQ(result.OperandsOf("a0_reload"), "a0_host");
  EXPECT_EQ(result.OperandsOf("a0_back"), "a0_reload a0_host");
  EXPECT_EQ(result.OperandsOf("g0"), "g1 a0_back");
  EXPECT_EQ(result.OperandsOf("g2"), "gl a2");
  EXPECT_EQ(result.OperandsOf("h0"), "a0");
  EXPECT_EQ(result.Count("tensors"), 2);
  EXPECT_EQ(result.Count("bytes"), 2 * 4096);
  EXPECT_EQ(result.Count("views"), 0);
  EXPECT_EQ(result.Count("skipped_budget"), 0);
}

TEST(CpuOffload, WaitsForEveryCopyOnce) {
  Result result = Offload(Layers(20));
  std::map<Transfer, int> count;
  for (const Node* node : result.graph->nodes()) ++count[node->op().transfer];
  EXPECT_EQ(count[Transfer::kOffload], 19);
  EXPECT_EQ(count[Transfer::kReload], 19);
  EXPECT_EQ(count[Transfer::kWait], 38);
}

TEST(CpuOffload, MetadataIsTheProducers) {
  Result result = Offload(TwoLayers(
      R"(%a = aten::neg(%x) : f32[32, 32] {module = "layers.0.w1", seq = 7, source = "llama3.cc:9", recompute = must_save, chunk = {id = 1, region = "layers.0", role = body}})",
      kUse));
  EXPECT_EQ(result.NodeOf("a").meta().recompute, Recompute::kOffload);
  for (const char* name : {"a_offload", "a_host", "a_reload", "a_back"}) {
    const Meta& meta = result.NodeOf(name).meta();
    EXPECT_EQ(meta.module.str(), "layers.0.w1");
    EXPECT_EQ(meta.source.str(), "llama3.cc:9");
    EXPECT_EQ(meta.recompute, Recompute::kNone);
    const bool backward =
        name == std::string_view("a_reload") || name == std::string_view("a_back");
    EXPECT_EQ(meta.phase, backward ? Phase::kBackward : Phase::kForward);
    EXPECT_EQ(meta.chunk->backward, backward);
  }
}

TEST(CpuOffload, NamesThatAreTakenAreNotTakenAgain) {
  Result result =
      Offload(TwoLayers(fmt::format("%a = aten::neg(%x) : f32[32, 32] {}\n"
                                    "  %a_offload = aten::view(%a, size = [1024]) : f32[1024] {}\n"
                                    "  %a_offload_back = aten::sum(%a_offload) : f32[] {}",
                                    kSave, kForward, kForward),
                        fmt::format("%g1 = aten::neg(%a_offload) : f32[1024] {0}\n"
                                    "  %g = aten::mul.Tensor(%g1, %a_offload_back) : f32[1024] {0}",
                                    kBackward)));
  EXPECT_EQ(result.OperandsOf("a_host"), "a_offload_1 a");
  EXPECT_EQ(result.OperandsOf("g1"), "a_offload_back_1");
}

// What is waited for later may take longer, but holds its memory longer.
TEST(CpuOffload, DefersTheWait) {
  const auto forward = [](int64_t defer) {
    const std::string order = Offload(Layers(3), {.defer_layers = defer}).Order();
    return order.substr(0, order.find(" l "));
  };
  EXPECT_EQ(forward(0), "a0 a0_offload h0 a0_host a1 a1_offload h1 a1_host a2 h2 n");
  EXPECT_EQ(forward(1), "a0 a0_offload h0 a1 a1_offload h1 a0_host a2 h2 a1_host n");
  // Behind the last layer there is only the end of the forward.
  EXPECT_EQ(forward(2), "a0 a0_offload h0 a1 a1_offload h1 a2 h2 a0_host n a1_host");
  EXPECT_EQ(forward(9), "a0 a0_offload h0 a1 a1_offload h1 a2 h2 n a0_host a1_host");
  EXPECT_EQ(forward(std::numeric_limits<int64_t>::max()), forward(9));
}

TEST(CpuOffload, PrefetchesTheReload) {
  const auto backward = [](int64_t prefetch) {
    const std::string order = Offload(Layers(3), {.prefetch_layers = prefetch}).Order();
    return order.substr(order.find(" l ") + 3);
  };
  EXPECT_EQ(backward(0), "gl g2 a1_reload a1_back g1 a0_reload a0_back g0");
  EXPECT_EQ(backward(1), "gl a1_reload g2 a0_reload a1_back g1 a0_back g0");
  EXPECT_EQ(backward(2), "a1_reload gl a0_reload g2 a1_back g1 a0_back g0");
  // What is needed first starts first.
  EXPECT_EQ(backward(9), "a1_reload a0_reload gl g2 a1_back g1 a0_back g0");
  EXPECT_EQ(backward(std::numeric_limits<int64_t>::max()), backward(9));
}

TEST(CpuOffload, TheOnlyLayerLeavesToo) {
  EXPECT_EQ(Offload(Layers(1)).Order(), "a0 a0_offload h0 n a0_host l a0_reload gl a0_back g0");
}

TEST(CpuOffload, LayersAreOrderedAsTheyRun) {
  std::string text = Layers(3);
  for (size_t at = 0; (at = text.find("layers.", at)) != std::string::npos; ++at) {
    char& number = text[at + 7];
    number = static_cast<char>('0' + '2' - number);
  }
  EXPECT_EQ(Offload(text).Order(), Offload(Layers(3)).Order());
}

// The memory is in use until then, whatever the layers say.
TEST(CpuOffload, WaitsBehindTheLastForwardUse) {
  const std::string text = fmt::format(
      R"(graph @step(%x: input "x" f32[32, 32]) {{
  %a = aten::neg(%x) : f32[32, 32] {0}
  %v = aten::view(%a, size = [1024]) : f32[1024] {1}
  %b = aten::neg(%x) : f32[32, 32] {{module = "layers.1"}}
  %u = aten::detach(%v) : f32[1024] {{module = "layers.1"}}
  %c = aten::neg(%b) : f32[32, 32] {{module = "layers.2"}}
  %d = aten::exp(%u) : f32[1024] {{module = "layers.2"}}
  %e = aten::exp(%c) : f32[32, 32] {{module = "layers.2"}}
  %l = aten::sum(%e) : f32[] {{phase = loss}}
  {2}
  return loss "loss" %l, result "g" %g, result "d" %d
}})",
      kSave, kForward, kUse);
  const std::string order = "a a_offload v b u c d a_host e l a_reload a_back g";
  EXPECT_EQ(Offload(text, {.defer_layers = 0}).Order(), order);
  EXPECT_EQ(Offload(text, {.defer_layers = 1}).Order(), order);
  EXPECT_EQ(Offload(text, {.defer_layers = 2}).Order(),
            "a a_offload v b u c d e a_host l a_reload a_back g");
}

TEST(CpuOffload, WaitsBehindUsesByTheLoss) {
  Result result =
      Offload(TwoLayers(fmt::format("%a = aten::neg(%x) : f32[32, 32] {}", kSave),
                        fmt::format("%m = aten::mean(%a) : f32[] {{phase = loss}}\n  {}", kUse)));
  EXPECT_EQ(result.Order(), "a a_offload z l m a_host a_reload a_back g");
}

// Which values leave. The control is one that does; each of the others differs in one thing.

TEST(CpuOffload, KeptValueWithABackwardUseLeaves) {
  EXPECT_TRUE(Offload(TwoLayers(fmt::format("%a = aten::mm(%x, %w) : f32[32, 32] {}", kSave), kUse))
                  .Leaves("a"));
}

void ExpectStays(const std::string& text) {
  Result result = Offload(text);
  EXPECT_FALSE(result.run.changed) << Print(*result.graph);
  EXPECT_EQ(result.Count("tensors"), 0);
}

TEST(CpuOffload, ValueWithoutABackwardUseStays) {
  ExpectStays(TwoLayers(
      fmt::format("%a = aten::mm(%x, %w) : f32[32, 32] {}\n  %b = aten::neg(%a) : f32[32, 32] {}",
                  kSave, kForward),
      fmt::format("%g = aten::mul.Tensor(%b, %l) : f32[32, 32] {}", kBackward)));
}

TEST(CpuOffload, ValueThatIsNotKeptStays) {
  for (const char* tag : {"", ", recompute = prefer_recompute", ", recompute = must_recompute"}) {
    ExpectStays(TwoLayers(
        fmt::format("%a = aten::mm(%x, %w) : f32[32, 32] {{module = \"layers.0\"{}}}", tag), kUse));
  }
}

TEST(CpuOffload, ViewStays) {
  ExpectStays(TwoLayers(fmt::format("%a = aten::t(%x) : f32[32, 32]{{1, 32}} {}", kSave),
                        fmt::format("%g = aten::neg(%a) : f32[32, 32]{{1, 32}} {}", kBackward)));
}

TEST(CpuOffload, SmallValueStays) {
  const auto text = [](int rows) {
    return TwoLayers(fmt::format("%a = aten::zeros([{0}, 8], dtype = f32) : f32[{0}, 8] {1}", rows,
                                 R"({module = "layers.0", recompute = must_save})"),
                     fmt::format("%g = aten::neg(%a) : f32[{}, 8] {}", rows, kBackward));
  };
  EXPECT_TRUE(Offload(text(128)).Leaves("a"));
  ExpectStays(text(127));
}

TEST(CpuOffload, WhatACollectiveReturnedStays) {
  ExpectStays(
      TwoLayers(fmt::format("%c = _c10d_functional::reduce_scatter_tensor(%x, reduce_op = \"sum\", "
                            "group_size = 1, group_name = \"tp\") : f32[32, 32] {0}\n"
                            "  %a = _c10d_functional::wait_tensor(%c) : f32[32, 32] {0}",
                            kSave),
                kUse));
}

TEST(CpuOffload, ValueOutsideOfLayersStays) {
  for (const char* module : {"", "norm", "layers", "layers.x", "mylayers.0"}) {
    ExpectStays(TwoLayers(
        fmt::format(
            "%a = aten::mm(%x, %w) : f32[32, 32] {{module = \"{}\", recompute = must_save}}",
            module),
        kUse));
  }
}

TEST(CpuOffload, WhatIsMadeOfParametersAloneStays) {
  ExpectStays(TwoLayers(fmt::format("%a = aten::mm(%w, %w) : f32[32, 32] {}", kSave), kUse));
}

TEST(CpuOffload, WhatTheStepReturnsStays) {
  const std::string forward = fmt::format(
      "%a = aten::mm(%x, %w) : f32[32, 32] {}\n  %v = aten::t(%a) : f32[32, 32]{{1, 32}} {}", kSave,
      kForward);
  EXPECT_TRUE(Offload(TwoLayers(forward, kUse)).Leaves("a"));
  ExpectStays(TwoLayers(forward, kUse, ", result \"a\" %a"));
  ExpectStays(TwoLayers(forward, kUse, ", result \"v\" %v"));
}

TEST(CpuOffload, ValueOfLossOrBackwardStays) {
  for (const char* phase : {"loss", "backward"}) {
    ExpectStays(
        TwoLayers(fmt::format("%a = aten::mm(%x, %w) : f32[32, 32] {{module = \"layers.0\", "
                              "phase = {}, recompute = must_save}}",
                              phase),
                  kUse));
  }
}

TEST(CpuOffload, StridesSurviveTheJourney) {
  Result result =
      Offload(TwoLayers(fmt::format("%t = aten::t(%x) : f32[32, 32]{{1, 32}} {}\n"
                                    "  %a = aten::neg(%t) : f32[32, 32]{{1, 32}} {}",
                                    kForward, kSave),
                        fmt::format("%g = aten::neg(%a) : f32[32, 32]{{1, 32}} {}", kBackward)));
  EXPECT_EQ(result.NodeOf("a_back").result()->type(), result.NodeOf("a").result()->type());
}

// On a GPU the value travels to the host and back to where it was.
TEST(CpuOffload, ValueComesBackToItsDevice) {
  Result result = Offload(fmt::format(
      R"(graph @step(%x: input "x" f32[32, 32] @cuda:1) {{
  %a = aten::neg(%x) : f32[32, 32] @cuda:1 {0}
  %l = aten::sum(%a) : f32[] @cuda:1 {{phase = loss}}
  %g = aten::mul.Tensor(%a, %l) : f32[32, 32] @cuda:1 {1}
  return result "g" %g
}})",
      kSave, kBackward));
  EXPECT_EQ(DeviceName(result.NodeOf("a_host").result()->type().device), "cpu");
  EXPECT_EQ(DeviceName(result.NodeOf("a_back").result()->type().device), "cuda:1");
}

TEST(CpuOffload, EachResultOfANodeIsAValueOfItsOwn) {
  const std::string text =
      TwoLayers(fmt::format("%a, %i = aten::topk(%x, k = 32) : (f32[32, 32], i64[32, 32]) {0}\n"
                            "  %b, %j = aten::max.dim(%x, dim = 1) : (f32[32], i64[32]) {0}",
                            kSave),
                fmt::format("%g1 = aten::mul.Tensor(%a, %l) : f32[32, 32] {0}\n"
                            "  %g2 = aten::mul.Tensor(%g1, %i) : f32[32, 32] {0}\n"
                            "  %g = aten::mul.Tensor(%g2, %b) : f32[32, 32] {0}",
                            kBackward));
  Result result = Offload(text);
  EXPECT_TRUE(result.Leaves("a"));
  EXPECT_TRUE(result.Leaves("i"));
  EXPECT_FALSE(result.Leaves("b"));
  // With room for one of them the node is tagged for it, and a second run leaves the other alone.
  result = Offload(text, {.budget_gb = KiB(4)});
  EXPECT_TRUE(result.Leaves("a"));
  EXPECT_FALSE(result.Leaves("i"));
}

// Views of what leaves. The backward must not read them from the forward: that would hold the
// memory.

TEST(CpuOffload, ViewIsMadeAgainOnceForAllItsUsers) {
  Result result =
      Offload(TwoLayers(fmt::format("%a = aten::mm(%x, %w) : f32[32, 32] {}\n"
                                    "  %v = aten::view(%a, size = [1024]) : f32[1024] {}\n"
                                    "  %y = aten::sum(%v) : f32[] {}",
                                    kSave, R"({module = "layers.0", source = "m.cc:1"})", kForward),
                        fmt::format("%g1 = aten::mul.Tensor(%l, %y) : f32[] {0}\n"
                                    "  %g2 = aten::mul.Tensor(%v, %g1) : f32[1024] {0}\n"
                                    "  %g = aten::mul.Tensor(%v, %g2) : f32[1024] {0}",
                                    kBackward)));
  EXPECT_EQ(result.Order(), "a a_offload v y z a_host l a_reload g1 a_back v_back g2 g");
  EXPECT_EQ(result.OperandsOf("v_back"), "a_back");
  EXPECT_EQ(result.OperandsOf("g2"), "v_back g1");
  EXPECT_EQ(result.OperandsOf("g"), "v_back g2");
  EXPECT_EQ(result.OperandsOf("y"), "v");
  EXPECT_EQ(result.NodeOf("v_back").meta().phase, Phase::kBackward);
  EXPECT_EQ(result.NodeOf("v_back").meta().source.str(), "m.cc:1");
  EXPECT_EQ(result.Count("views"), 1);
}

TEST(CpuOffload, TwoViewsOfAValueComeFromOneReload) {
  Result result = Offload(TwoLayers(fmt::format("%a = aten::mm(%x, %w) : f32[32, 32] {0}\n"
                                                "  %t = aten::t(%a) : f32[32, 32]{{1, 32}} {1}\n"
                                                "  %s = aten::slice.Tensor(%a, dim = 0, start = 8, "
                                                "end = 40) : f32[24, 32] offset [256] {1}\n"
                                                "  %unused = aten::detach(%a) : f32[32, 32] {1}",
                                                kSave, kForward),
                                    fmt::format("%g1 = aten::mm(%s, %t) : f32[24, 32] {0}\n"
                                                "  %g = aten::mm(%g1, %a) : f32[24, 32] {0}",
                                                kBackward)));
  EXPECT_EQ(result.OperandsOf("g1"), "s_back t_back");
  EXPECT_EQ(result.OperandsOf("g"), "g1 a_back");
  EXPECT_EQ(result.OperandsOf("s_back"), "a_back");
  EXPECT_EQ(result.OperandsOf("t_back"), "a_back");
  EXPECT_EQ(result.NodeOf("s_back").view_offsets()[0], Dim(256));
  EXPECT_EQ(result.Count("tensors"), 1);
  EXPECT_EQ(result.Count("views"), 2);
}

TEST(CpuOffload, ViewsOfViewsFollowEachOther) {
  Result result = Offload(TwoLayers(
      fmt::format("%a = aten::mm(%x, %w) : f32[32, 32] {0}\n"
                  "  %p, %q = aten::split.Tensor(%a, split_size = 16) : (f32[16, 32], f32[16, 32]) "
                  "offset [0, 512] {1}\n"
                  "  %t = aten::t(%q) : f32[32, 16]{{1, 32}} {1}\n"
                  "  %u = aten::unsqueeze(%t, dim = 0) : f32[1, 32, 16]{{32, 1, 32}} {1}",
                  kSave, kForward),
      fmt::format("%g1 = aten::mul.Tensor(%u, %l) : f32[1, 32, 16]{{32, 1, 32}} {0}\n"
                  "  %g2 = aten::sum(%p) : f32[] {0}\n"
                  "  %g = aten::mul.Tensor(%g1, %g2) : f32[1, 32, 16]{{32, 1, 32}} {0}",
                  kBackward)));
  EXPECT_EQ(result.Order(),
            "a a_offload p t u z a_host l a_reload a_back p_back t_back u_back g1 g2 g");
  EXPECT_EQ(result.OperandsOf("t_back"), "q_back");
  EXPECT_EQ(result.OperandsOf("u_back"), "t_back");
  EXPECT_EQ(result.OperandsOf("g2"), "p_back");
}

// Several backward regions.

// Pieces of a chunked loss: what reads the value before it has left reads the original, and nothing
// comes back before the loss is done.
TEST(CpuOffload, UsesBeforeAValueHasLeftKeepIt) {
  Result result = Offload(fmt::format(
      R"(graph @step(%x: input "x" f32[32, 32]) {{
  %a = aten::neg(%x) : f32[32, 32] {0}
  %v = aten::view(%a, size = [1024]) : f32[1024] {{module = "layers.0"}}
  %l1 = aten::sum(%x) : f32[] {{phase = loss}}
  %e1 = aten::mul.Tensor(%a, %l1) : f32[32, 32] {{phase = backward}}
  %e2 = aten::mul.Tensor(%v, %l1) : f32[1024] {{phase = backward}}
  %l2 = aten::sum(%a) : f32[] {{phase = loss}}
  %d1 = aten::mul.Tensor(%e1, %l2) : f32[32, 32] {{phase = backward}}
  %l3 = aten::add.Tensor(%l1, %l2) : f32[] {{phase = loss}}
  %d2 = aten::mul.Tensor(%d1, %l3) : f32[32, 32] {{phase = backward}}
  %g1 = aten::mul.Tensor(%d2, %a) : f32[32, 32] {1}
  %g = aten::mul.Tensor(%e2, %v) : f32[1024] {1}
  return result "g" %g, result "g1" %g1
}})",
      kSave, kBackward));
  EXPECT_EQ(result.Order(),
            "a a_offload v l1 e1 e2 l2 a_host d1 l3 a_reload d2 a_back g1 v_back g");
  EXPECT_EQ(result.OperandsOf("e1"), "a l1");
  EXPECT_EQ(result.OperandsOf("e2"), "v l1");
  EXPECT_EQ(result.OperandsOf("g1"), "d2 a_back");
  EXPECT_EQ(result.OperandsOf("g"), "e2 v_back");
}

TEST(CpuOffload, NothingLeavesThatIsNotReadAgainAfterwards) {
  ExpectStays(fmt::format(
      R"(graph @step(%x: input "x" f32[32, 32]) {{
  %a = aten::neg(%x) : f32[32, 32] {0}
  %l1 = aten::sum(%x) : f32[] {{phase = loss}}
  %g = aten::mul.Tensor(%a, %l1) : f32[32, 32] {{phase = backward}}
  %l2 = aten::sum(%a) : f32[] {{phase = loss}}
  return loss "l" %l2, result "g" %g
}})",
      kSave));
}

// Copying it back would make compute wait, be it for the loss or for the first layer of the
// backward.
TEST(CpuOffload, WhatTheBackwardBeginsWithStays) {
  const std::string use = "  %e = aten::neg(%a0) : f32[32, 32] {phase = backward}\n";
  for (const char* before : {"  %gl = ", "  %g2 = ", "  %g1 = "}) {
    std::string text = Layers(3);
    text.insert(text.find(before), use);
    Result result = Offload(text);
    EXPECT_FALSE(result.Leaves("a0")) << before;
    EXPECT_TRUE(result.Leaves("a1")) << before;
  }
}

// The wait for %a0 is in layer 2, so its way back begins with layer 3, together with that of %a2.
TEST(CpuOffload, WhatAnEarlierLayerWantsStartsAheadOfThatLayer) {
  std::string text = Layers(4);
  text.insert(text.find("  %g1 = "), "  %e = aten::neg(%a0) : f32[32, 32] {phase = backward}\n");
  const std::string order = Offload(text).Order();
  EXPECT_EQ(order.substr(order.find(" l ") + 3),
            "gl a2_reload a0_reload g3 a1_reload a2_back g2 a0_back e a1_back g1 g0");
}

// The backward of layer 2 computes something again that layer 0 computed first. That is not where
// the backward of layer 0 begins, but that of layer 1 does begin with something computed again.
TEST(CpuOffload, CopiesCountWithTheWorkOfTheirLayer) {
  std::string text = Layers(4);
  text.insert(
      text.find("  %g2 = "),
      "  %c = aten::neg(%x) : f32[32, 32] {module = \"layers.0\", phase = backward, "
      "recompute = prefer_recompute}\n"
      "  %v = aten::t(%x) : f32[32, 32]{1, 32} {module = \"layers.0\", phase = backward}\n");
  text.insert(text.find("  %g1 = "),
              "  %d = aten::neg(%x) : f32[32, 32] {module = \"layers.1\", phase = backward, "
              "recompute = prefer_recompute}\n");
  const std::string order = Offload(text).Order();
  EXPECT_EQ(order.substr(order.find(" l ") + 3),
            "gl a2_reload g3 c v a1_reload a2_back g2 a0_reload d a1_back g1 a0_back g0");
}

// The budget. Layers 0 and 1 may leave, 2 is the last; sizes in KiB.

Result WithBudget(const std::vector<std::pair<int, int>>& layers_and_sizes, double budget_gb) {
  std::string forward, backward;
  char name = 'a';
  for (auto [layer, size] : layers_and_sizes) {
    forward += fmt::format(
        "  %{0} = aten::neg(%x{1}) : f32[{1}, 256] {{module = \"layers.{2}\", recompute = "
        "must_save}}\n",
        name, size, layer);
    const std::string line = fmt::format(
        "  %g{0} = aten::neg(%{0}) : f32[{1}, 256] {{module = \"layers.{2}\", phase = backward}}\n",
        name++, size, layer);
    backward = line + backward;
  }
  std::string inputs = "%x4: input \"x4\" f32[4, 256]";
  for (int size : {8, 12}) inputs += fmt::format(", %x{0}: input \"x{0}\" f32[{0}, 256]", size);
  return Offload(
      fmt::format(
          "graph @step({}) {{\n{}"
          "  %z = aten::neg(%x4) : f32[4, 256] {{module = \"layers.2\"}}\n"
          "  %gz = aten::neg(%z) : f32[4, 256] {{module = \"layers.2\", phase = backward}}\n{}"
          "  return result \"gz\" %gz\n}}\n",
          inputs, forward, backward),
      {.budget_gb = budget_gb});
}

std::string Leaving(const Result& result) {
  std::string leaving;
  for (char name = 'a'; name <= 'f'; ++name) {
    if (result.Leaves(std::string(1, name))) leaving += name;
  }
  return leaving;
}

TEST(CpuOffload, LayersShareTheBudget) {
  // Taken largest first over the whole model, %a and %b would leave no room for layer 1.
  Result result = WithBudget({{0, 8}, {0, 8}, {1, 4}, {1, 4}}, KiB(16));
  EXPECT_EQ(Leaving(result), "acd");
  EXPECT_EQ(result.Count("skipped_budget"), 1);
  EXPECT_EQ(result.Count("bytes"), 16 * 1024);
}

TEST(CpuOffload, WithinALayerTheLargestGoFirst) {
  EXPECT_EQ(Leaving(WithBudget({{0, 4}, {0, 12}, {0, 8}}, KiB(20))), "bc");
}

TEST(CpuOffload, WhatDoesNotFitIsPassedOver) {
  EXPECT_EQ(Leaving(WithBudget({{0, 12}, {0, 4}, {0, 8}}, KiB(8))), "c");
  EXPECT_EQ(Leaving(WithBudget({{0, 12}, {1, 12}}, KiB(8))), "");
}

TEST(CpuOffload, WhatALayerCannotUseGoesToTheOthers) {
  EXPECT_EQ(Leaving(WithBudget({{0, 8}, {0, 8}, {0, 8}, {1, 4}}, KiB(20))), "abd");
  // Shares of 14 hold %a and %c; the 8 that are left hold %b.
  EXPECT_EQ(Leaving(WithBudget({{0, 8}, {0, 8}, {1, 12}, {1, 12}}, KiB(28))), "abc");
}

TEST(CpuOffload, NoBudgetIsNoLimit) {
  const std::vector<std::pair<int, int>> sizes = {{0, 12}, {0, 12}, {1, 12}, {1, 12}};
  EXPECT_EQ(Leaving(WithBudget(sizes, 0)), "abcd");
  EXPECT_EQ(Leaving(WithBudget(sizes, 1e300)), "abcd");
  EXPECT_EQ(Leaving(WithBudget(sizes, KiB(1))), "");
}

// Sizes that are not numbers count as what was seen when the step was captured.
TEST(CpuOffload, SymbolsCountAtTheirHints) {
  const auto text = [](int hint) {
    return fmt::format(
        R"(graph @step(%x: input "x" f32[s0, 16], %n: input "n" i64[1]) {{
  symbols {{
    s0: input, hint {2}, range [2, inf]
    u0: data, hint {2}, range [0, inf]
  }}
  gt::read_ints(%n) binds [u0] {{module = "layers.0"}}
  %a = aten::neg(%x) : f32[s0, 16] {0}
  %b = aten::zeros([4, u0, 4], dtype = f32) : f32[4, u0, 4] {0}
  %z = aten::neg(%x) : f32[s0, 16] {{module = "layers.1"}}
  %g1 = aten::neg(%a) : f32[s0, 16] {1}
  %g2 = aten::neg(%b) : f32[4, u0, 4] {1}
  return result "z" %z, result "g1" %g1, result "g2" %g2
}})",
        kSave, kBackward, hint);
  };
  auto large = Parse(text(64));
  EXPECT_TRUE(RunManaged(*large, {}).changed);
  EXPECT_NE(large->FindValue("a_back"), nullptr);
  EXPECT_NE(large->FindValue("b_back"), nullptr);
  EXPECT_TRUE(large->shapes().guards().empty());
  EXPECT_FALSE(RunManaged(*large, {}).changed);
  auto small = Parse(text(63));
  EXPECT_FALSE(RunManaged(*small, {}).changed);
}

TEST(CpuOffload, OptionsAreReadBack) {
  CpuOffload pass({.budget_gb = 0.5, .defer_layers = 2, .prefetch_layers = 0});
  EXPECT_EQ(pass.Spec(), "cpu_offload{budget_gb=0.5,defer_layers=2,prefetch_layers=0}");
  EXPECT_EQ(MakePass(pass.Spec())->Spec(), pass.Spec());
  for (const char* option : {"budget_gb", "defer_layers", "prefetch_layers"}) {
    EXPECT_THROW(MakePass(fmt::format("cpu_offload{{{}=-1}}", option)), Error) << option;
  }
}

TEST(CpuOffload, PolicySacAndOffloadRunsItBehindRematerialization) {
  PipelineOptions options;
  options.memory.policy = MemoryPolicy::kSacAndOffload;
  options.offload.budget_gb = 7;
  EXPECT_EQ(PrintPipeline(DefaultPipeline(options)),
            "dce,canonicalize,cse,dce,memory_policy{policy=sac_and_offload},rematerialize,"
            "cpu_offload{budget_gb=7.0},reshard_after_forward");
  options.memory.policy = MemoryPolicy::kDefault;
  EXPECT_EQ(PrintPipeline(DefaultPipeline(options)).find("cpu_offload"), std::string::npos);
}

// A product is kept and leaves; what is computed again from it reads what came back.
TEST(CpuOffload, CopiesOfRematerializationReadWhatCameBack) {
  auto graph = Parse(TwoLayers(
      R"(%a = aten::mm(%x, %w) : f32[32, 32] {module = "layers.0"}
  %v = aten::t(%a) : f32[32, 32]{1, 32} {module = "layers.0"}
  %b = aten::relu(%v) : f32[32, 32]{1, 32} {module = "layers.0"})",
      fmt::format("%g = aten::mul.Tensor(%b, %l) : f32[32, 32]{{1, 32}} {}", kBackward)));
  PassManager manager(
      ParsePipeline("memory_policy{policy=sac_and_offload},rematerialize,cpu_offload"),
      {.write_reproducer = false});
  manager.Run(*graph);
  Result result{std::move(graph), {}};
  EXPECT_EQ(result.Order(), "a a_offload z a_host l a_reload a_back v_recomputed b_recomputed g");
  EXPECT_EQ(result.OperandsOf("v_recomputed"), "a_back");
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
    const CpuOffloadOptions options = {.budget_gb = seed % 2 == 0 ? 0 : KiB(20),
                                       .defer_layers = static_cast<int64_t>(seed / 2 % 3),
                                       .prefetch_layers = static_cast<int64_t>(seed / 6 % 3)};
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
