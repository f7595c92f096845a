// Memory in use, node by node, compared with a reference that knows the rules but none of the engine's
// structures, and with what sim/memory_curve.h says about the order of the graph.
#include "gt/sim/live_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "gt/analysis/aliasing.h"
#include "gt/analysis/dependencies.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/sim/memory_curve.h"
#include "gt/testing/random_graph.h"

namespace gt::live_memory_test {
namespace {

using testing::RandomGraph;

using Bytes = std::vector<int64_t>;

std::unique_ptr<Graph> Verified(const std::string& text) {
  auto graph = Parse(text);
  Verify(*graph);
  return graph;
}

// Nodes that compute from %x: f32[4], 16 bytes, and return these.
std::unique_ptr<Graph> Step(const std::string& nodes, const std::string& outputs = "") {
  return Verified("graph @g(%x: input \"x\" f32[4], %m: input \"m\" f32[2, 2]) {" + nodes +
                  "\n  return " + outputs + "\n}\n");
}

// In use while each node runs, in the order of the graph. IfNext says the same beforehand.
Bytes InUse(Graph& graph) {
  const int32_t count = graph.NumberNodes();
  LiveMemory memory(graph);
  Bytes during;
  for (int32_t node = 0; node < count; ++node) {
    const int64_t foreseen = memory.IfNext(node);
    during.push_back(memory.Run(node));
    EXPECT_EQ(foreseen, during.back()) << node;
  }
  EXPECT_EQ(memory.peak(), during.empty() ? 0 : *std::max_element(during.begin(), during.end()));
  return during;
}

// In use while each node runs, found the slow way: for each storage all nodes are looked at.
class Reference {
 public:
  Reference(const Graph& graph, std::vector<int32_t> order)
      : graph_(graph), hints_(graph.shapes().Hints()), order_(std::move(order)) {
    for (const Node* node : graph.nodes()) {
      nodes_.push_back(node);
      for (int32_t i = 0; i < node->result_count(); ++i) {
        on_gpu_ |= node->result(i)->type().device.kind == DeviceKind::kCuda;
      }
    }
    for (const auto& input : graph.inputs()) {
      on_gpu_ |= input->value.type().device.kind == DeviceKind::kCuda;
    }
    position_.resize(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      position_[static_cast<size_t>(order_[i])] = static_cast<int64_t>(i);
    }
  }

  Bytes InUse() const {
    Bytes during(order_.size());
    for (size_t time = 0; time < order_.size(); ++time) {
      during[time] = Scratch(*nodes_[static_cast<size_t>(order_[time])]);
    }
    for (const Node* node : nodes_) {
      for (int32_t i = 0; i < node->result_count(); ++i) {
        const Value& value = *node->result(i);
        if (!IsCounted(value)) continue;
        const int64_t end = EndOf(value), bytes = BytesOf(value);
        for (auto time = static_cast<size_t>(PositionOf(*node)); time < order_.size(); ++time) {
          if (static_cast<int64_t>(time) <= end) during[time] += bytes;
        }
      }
    }
    return during;
  }

 private:
  static constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

  int64_t PositionOf(const Node& node) const {
    return position_[static_cast<size_t>(node.number())];
  }

  // Allocated by its node in the memory that is counted.
  bool IsCounted(const Value& value) const {
    return BaseOf(value) == &value && value.producer()->op().transfer != Transfer::kOffload &&
           (value.type().device.kind == DeviceKind::kCuda) == on_gpu_;
  }

  const Value* BaseOf(const Value& value) const {
    const Value* viewed = ViewedValue(value);
    if (viewed == nullptr) return &value;
    const TensorType &from = viewed->type(), &to = value.type();
    const bool fits =
        from.dtype == to.dtype && from.device == to.device && (from == to || HasNoGaps(from));
    const bool shares = fits || value.producer()->op().aliasing == Aliasing::kAlways;
    return shares ? BaseOf(*viewed) : &value;
  }

  int64_t At(const Dim& dim) const { return std::max<int64_t>(0, dim.Evaluate(hints_)); }

  bool HasNoGaps(const TensorType& type) const {
    for (size_t i = 0; i < type.sizes.size(); ++i) {
      int64_t inner = 1;
      for (size_t j = i + 1; j < type.sizes.size(); ++j) {
        inner *= std::max<int64_t>(1, At(type.sizes[j]));
      }
      if (At(type.sizes[i]) != 1 && At(type.strides[i]) != inner) return false;
    }
    return true;
  }

  int64_t BytesOf(const Value& value) const {
    if (!value.type().defined()) return 0;
    int64_t last = 0;
    for (size_t i = 0; i < value.type().sizes.size(); ++i) {
      const int64_t size = At(value.type().sizes[i]);
      if (size == 0) return 0;
      last += (size - 1) * At(value.type().strides[i]);
    }
    const int64_t bytes = (last + 1) * ItemSize(value.type().dtype);
    return on_gpu_ ? (bytes + 511) / 512 * 512 : bytes;
  }

  int64_t Scratch(const Node& node) const {
    if (node.op().scratch != nullptr) {
      const bool on_gpu = node.result(0)->type().device.kind == DeviceKind::kCuda;
      return on_gpu == on_gpu_ ? At(CostOf(node, node.op().scratch)) : 0;
    }
    static const std::set<std::string> kConverting = {"aten::add.Tensor", "aten::sub.Tensor",
                                                      "aten::mul.Tensor", "aten::div.Tensor"};
    if (on_gpu_ || !kConverting.contains(node.op().name.str())) return 0;
    const DType dtype = node.result()->type().dtype;
    int64_t bytes = 0;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const TensorType& type = node.operand(i)->type();
      if (type.dtype == dtype || type.sizes.empty()) continue;
      int64_t elements = 1;
      for (const Dim& size : type.sizes) elements *= At(size);
      bytes += elements * ItemSize(dtype);
    }
    return bytes;
  }

  bool Touches(const Node& node, const Value& storage) const {
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      if (BaseOf(*node.operand(i)) == &storage) return true;
    }
    for (int32_t i = 0; i < node.result_count(); ++i) {
      if (BaseOf(*node.result(i)) == &storage) return true;
    }
    return false;
  }

  int64_t EndOf(const Value& storage) const {
    for (const auto& output : graph_.outputs()) {
      if (BaseOf(*output->value()) == &storage) return kForever;
    }
    int64_t end = 0;
    for (const Node* node : nodes_) {
      if (!Touches(*node, storage)) continue;
      const Collective kind = node->op().collective;
      const bool launches = kind != Collective::kNone && kind != Collective::kWait;
      end = std::max(end, launches ? EndOfCollective(*node) : PositionOf(*node));
    }
    return end;
  }

  int64_t EndOfCollective(const Node& launch) const {
    int64_t end = -1;
    for (const Node* node : nodes_) {
      if (node->op().collective != Collective::kWait) continue;
      if (BaseOf(*node->operand(0))->producer() == &launch) end = std::max(end, PositionOf(*node));
    }
    return end < 0 ? kForever : end;
  }

  const Graph& graph_;
  SymbolValues hints_;
  std::vector<int32_t> order_;
  std::vector<const Node*> nodes_;
  std::vector<int64_t> position_;  // by number of the node
  bool on_gpu_ = false;
};

Bytes Expected(Graph& graph) {
  std::vector<int32_t> order(static_cast<size_t>(graph.NumberNodes()));
  std::iota(order.begin(), order.end(), 0);
  return Reference(graph, std::move(order)).InUse();
}

// The same as measured, without inputs, which are alive all the time.
Bytes Measured(const Graph& graph) {
  MemoryCurve curve = MeasureMemory(graph);
  int64_t inputs = 0;
  for (int64_t bytes : curve.constant) inputs += bytes;
  for (int64_t& bytes : curve.during) bytes -= inputs;
  return curve.during;
}

void ExpectAsMeasured(Graph& graph) {
  EXPECT_EQ(InUse(graph), Expected(graph)) << Print(graph);
  EXPECT_EQ(InUse(graph), Measured(graph)) << Print(graph);
  int64_t inputs = 0;
  MemoryCurve curve = MeasureMemory(graph);
  for (int64_t bytes : curve.constant) inputs += bytes;
  EXPECT_EQ(LiveMemory(graph).input_bytes(), inputs);
  EXPECT_EQ(PeakInUse(graph), graph.node_count() == 0 ? 0 : curve.peak - inputs);
}

TEST(LiveMemory, OperandsDieBehindTheirLastUse) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %b = aten::neg(%a) : f32[4]
  %c = aten::mul.Tensor(%b, %a) : f32[4]
  %d = aten::neg(%c) : f32[4])",
                    "result \"d\" %d");
  EXPECT_EQ(InUse(*graph), (Bytes{16, 32, 48, 32}));
  ExpectAsMeasured(*graph);
}

TEST(LiveMemory, OutputsStay) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %b = aten::neg(%a) : f32[4]
  %c = aten::neg(%b) : f32[4])",
                    "result \"a\" %a, result \"again\" %a, result \"x\" %x");
  EXPECT_EQ(InUse(*graph), (Bytes{16, 32, 48}));
  ExpectAsMeasured(*graph);
}

// There while its node runs, and no longer.
TEST(LiveMemory, ResultsNobodyUses) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %v, %i = aten::topk(%x, k = 2) : (f32[2], i64[2])
  %b = aten::neg(%v) : f32[2])");
  EXPECT_EQ(InUse(*graph), (Bytes{16, 8 + 16, 8 + 8}));
  ExpectAsMeasured(*graph);
}

// Of values and of inputs: no memory of their own, and what they look into stays.
TEST(LiveMemory, ViewsKeepWhatTheyLookInto) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %s, %t = aten::split.Tensor(%a, split_size = 2) : (f32[2], f32[2]) offset [0, 2]
  %u = aten::detach(%t) : f32[2]
  %b = aten::neg(%x) : f32[4]
  %c = aten::neg(%u) : f32[2]
  %d = aten::neg(%b) : f32[4]
  %y = aten::t(%m) : f32[2, 2]{1, 2}
  %z = aten::neg(%y) : f32[2, 2]{1, 2})");
  EXPECT_EQ(InUse(*graph), (Bytes{16, 16, 16, 32, 40, 32, 0, 16}));
  ExpectAsMeasured(*graph);
}

TEST(LiveMemory, AnOutputThatLooksIntoAValueKeepsIt) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %s, %t = aten::split.Tensor(%a, split_size = 2) : (f32[2], f32[2]) offset [0, 2]
  %b = aten::neg(%x) : f32[4])",
                    "result \"t\" %t, result \"b\" %b");
  EXPECT_EQ(InUse(*graph), (Bytes{16, 16, 32}));
  ExpectAsMeasured(*graph);
}

// A reshape that its operand's strides do not allow as a view is new memory.
TEST(LiveMemory, ReshapesThatCopy) {
  auto graph = Step(R"(
  %a = aten::neg(%m) : f32[2, 2]
  %t = aten::t(%a) : f32[2, 2]{1, 2}
  %r = aten::reshape(%t, shape = [4]) : f32[4]
  %b = aten::neg(%r) : f32[4]
  %q = aten::reshape(%b, shape = [2, 2]) : f32[2, 2]
  %c = aten::neg(%q) : f32[2, 2])");
  EXPECT_EQ(InUse(*graph), (Bytes{16, 16, 32, 32, 16, 32}));
  ExpectAsMeasured(*graph);
}

// What a collective reads and writes is alive until its wait.
TEST(LiveMemory, CollectivesInFlight) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %g = _c10d_functional::all_gather_into_tensor(%a, group_size = 2, group_name = "tp") : f32[8]
  %b = aten::neg(%x) : f32[4]
  %w = _c10d_functional::wait_tensor(%g) : f32[8]
  %c = aten::neg(%w) : f32[8]
  %d = aten::neg(%b) : f32[4])");
  EXPECT_EQ(InUse(*graph), (Bytes{16, 48, 64, 64, 80, 32}));
  ExpectAsMeasured(*graph);
}

TEST(LiveMemory, CoalescedCollectivesEndWithTheLastWait) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %b = aten::neg(%m) : f32[2, 2]
  %r, %s = _c10d_functional::all_reduce_coalesced([%a, %b], reduce_op = "sum", group_name = "tp") : (f32[4], f32[2, 2])
  %v = _c10d_functional::wait_tensor(%r) : f32[4]
  %c = aten::neg(%v) : f32[4]
  %w = _c10d_functional::wait_tensor(%s) : f32[2, 2]
  %d = aten::neg(%x) : f32[4])");
  EXPECT_EQ(InUse(*graph), (Bytes{16, 32, 64, 64, 80, 64, 16}));
  ExpectAsMeasured(*graph);
}

// Whoever takes the outputs waits.
TEST(LiveMemory, CollectivesNobodyWaitsForLastToTheEnd) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %r = _c10d_functional::all_reduce(%a, reduce_op = "sum", group_name = "tp") : f32[4]
  %b = aten::neg(%x) : f32[4])",
                    "result \"r\" %r");
  EXPECT_EQ(InUse(*graph), (Bytes{16, 32, 48}));
  ExpectAsMeasured(*graph);
}

// A view of what is in flight is waited for as the collective itself.
TEST(LiveMemory, WaitsForViewsOfWhatIsInFlight) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %g = _c10d_functional::all_gather_into_tensor(%a, group_size = 2, group_name = "tp") : f32[8]
  %v = aten::view(%g, size = [2, 4]) : f32[2, 4]
  %w = _c10d_functional::wait_tensor(%v) : f32[2, 4]
  %b = aten::neg(%w) : f32[2, 4])");
  EXPECT_EQ(InUse(*graph), (Bytes{16, 48, 48, 48, 64}));
  ExpectAsMeasured(*graph);
}

// In the host's memory, though the step runs on the CPU itself.
TEST(LiveMemory, WhatWasOffloadedIsElsewhere) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %o = gt::offload(%a) : f32[4]
  %w = gt::wait_transfer(%o, %a) : f32[4]
  %b = aten::neg(%x) : f32[4]
  %r = gt::reload(%w, device = "cpu") : f32[4]
  %v = gt::wait_transfer(%r, %w) : f32[4]
  %c = aten::mul.Tensor(%b, %v) : f32[4])");
  EXPECT_EQ(InUse(*graph), (Bytes{16, 16, 16, 16, 32, 32, 48}));
  ExpectAsMeasured(*graph);
}

// On the CPU a sum of two dtypes converts first.
TEST(LiveMemory, KernelsThatConvertTheirOperands) {
  auto graph = Step(R"(
  %h = aten::_to_copy(%x, dtype = bf16) : bf16[4]
  %a = aten::add.Tensor(%h, %x) : f32[4]
  %b = aten::neg(%a) : f32[4])");
  EXPECT_EQ(InUse(*graph), (Bytes{8, 8 + 16 + 16, 32}));
  ExpectAsMeasured(*graph);
}

// On a GPU, what is on the host does not count.
TEST(LiveMemory, CountsTheDevice) {
  auto graph = Verified(R"(graph @g(%x: input "x" f32[4] @cuda:0, %y: input "y" f32[8]) {
  %a = aten::neg(%x) : f32[4] @cuda:0
  %o = gt::offload(%a) : f32[4]
  %w = gt::wait_transfer(%o, %a) : f32[4]
  %b = aten::neg(%y) : f32[8]
  %c = aten::neg(%x) : f32[4] @cuda:0
  return result "w" %w, result "c" %c
})");
  EXPECT_EQ(InUse(*graph), (Bytes{512, 512, 512, 0, 512}));
  EXPECT_EQ(LiveMemory(*graph).input_bytes(), 512);
  ExpectAsMeasured(*graph);
}

// Also when no input is on it.
TEST(LiveMemory, CountsTheDeviceThatTheStepMakesValuesOn) {
  auto graph = Step(R"(
  %z = aten::zeros(size = [2], dtype = f32, device = "cuda") : f32[2] @cuda
  %a = aten::neg(%x) : f32[4]
  %b = aten::neg(%z) : f32[2] @cuda)");
  EXPECT_EQ(InUse(*graph), (Bytes{512, 512, 1024}));
  ExpectAsMeasured(*graph);
}

// Sizes are those of the hints.
TEST(LiveMemory, SymbolsAreTheirHints) {
  auto graph = Verified(R"(graph @g(%x: input "x" f32[s0, 2]) {
  symbols { s0: input, hint 5, range [2, 64] }
  %a = aten::neg(%x) : f32[s0, 2]
  %b = aten::neg(%a) : f32[s0, 2]
  return result "b" %b
})");
  EXPECT_EQ(InUse(*graph), (Bytes{40, 80}));
  ExpectAsMeasured(*graph);
}

TEST(LiveMemory, OfAnEmptyGraph) {
  auto graph = Step("", "result \"x\" %x");
  EXPECT_EQ(PeakInUse(*graph), 0);
  ExpectAsMeasured(*graph);
}

// Each order starts with nothing in use and a peak of its own.
TEST(LiveMemory, AnswersForManyOrders) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %b = aten::sum(%a) : f32[]
  %c = aten::neg(%m) : f32[2, 2]
  %d = aten::sum(%c) : f32[])");
  graph->NumberNodes();
  LiveMemory memory(*graph);
  for (int32_t node : {0, 2, 1, 3}) memory.Run(node);
  EXPECT_EQ(memory.peak(), 36);
  memory.Restart();
  EXPECT_EQ(memory.peak(), 0);
  EXPECT_EQ(memory.IfNext(0), 16);
  for (int32_t node : {0, 1, 2, 3}) memory.Run(node);
  EXPECT_EQ(memory.peak(), 20);
}

// Chains of compute, views and collectives that are waited for sooner or later, or never.
std::unique_ptr<Graph> RandomStep(uint64_t seed) {
  std::mt19937_64 random(seed);
  auto graph = std::make_unique<Graph>("step");
  auto type = [&](DType dtype, Shape sizes) {
    return ContiguousType(dtype, Device(), std::move(sizes), graph->shapes());
  };
  std::vector<Value*> values = {
      graph->AddInput(InputRole::kInput, "x", type(DType::kFloat32, {4, 2}), "x"),
      graph->AddInput(InputRole::kParameter, "w", type(DType::kBFloat16, {4, 2}), "w")};
  std::vector<Value*> in_flight, moving;
  auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  auto any = [&] { return values[values.size() - 1 - below(std::min<size_t>(values.size(), 6))]; };
  auto take = [&](std::vector<Value*>& from) {
    std::swap(from[below(from.size())], from.back());
    Value* taken = from.back();
    from.pop_back();
    return taken;
  };
  while (graph->node_count() < 40) {
    auto node = [&](std::string_view op) { return NodeBuilder(*graph, op); };
    switch (below(10)) {
      case 0:
        values.push_back(node("aten::neg").Set("self", any()).Result());
        break;
      case 1:
        values.push_back(node("aten::add.Tensor").Set("self", any()).Set("other", any()).Result());
        break;
      case 2:
        values.push_back(node("aten::detach").Set("self", any()).Result());
        break;
      case 3:
        values.push_back(node("aten::reshape")
                             .Set("self", node("aten::t").Set("self", any()).Result())
                             .Set("shape", Argument(Shape{4, 2}))
                             .Result());
        break;
      case 4:
        values.push_back(
            node("aten::reshape").Set("self", any()).Set("shape", Argument(Shape{4, 2})).Result());
        break;
      case 5:
        in_flight.push_back(node("_c10d_functional::all_reduce")
                                .Set("input", any())
                                .Set("reduce_op", Argument("sum"))
                                .Set("group_name", Argument("g"))
                                .Result());
        break;
      case 9: {
        const Node* both = node("_c10d_functional::all_reduce_coalesced")
                               .Set("inputs", std::vector<Value*>{any(), any()})
                               .Set("reduce_op", Argument("sum"))
                               .Set("group_name", Argument("g"))
                               .Insert();
        in_flight.push_back(both->result(0));
        in_flight.push_back(both->result(1));
        break;
      }
      case 6:
        if (in_flight.empty()) break;
        values.push_back(
            node("_c10d_functional::wait_tensor").Set("tensor", take(in_flight)).Result());
        break;
      case 7:
        values.push_back(
            node("aten::_to_copy")
                .Set("self", any())
                .Set("dtype", Argument(below(2) == 0 ? DType::kFloat32 : DType::kBFloat16))
                .Result());
        break;
      case 8: {
        Value* source = any();
        Value* moved = node("gt::offload").Set("self", source).Result();
        moving.push_back(
            node("gt::wait_transfer").Set("moved", moved).Set("source", source).Result());
        Value* kept = take(moving);
        Value* back =
            node("gt::reload").Set("self", kept).Set("device", Argument(Device())).Result();
        values.push_back(node("gt::wait_transfer").Set("moved", back).Set("source", kept).Result());
        break;
      }
    }
  }
  for (size_t i = below(3); i > 0; --i) graph->AddOutput(OutputRole::kResult, "r", any());
  return graph;
}

TEST(LiveMemoryProperty, IsWhatIsMeasured) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    auto graph = RandomStep(seed);
    Verify(*graph);
    ExpectAsMeasured(*graph);
    if (HasFailure()) FAIL() << seed;
  }
}

// The same with operators of every kind, most of them on the CPU alone.
TEST(LiveMemoryProperty, IsWhatIsMeasuredForAllKindsOfOperators) {
  int on_cpu = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    auto graph = RandomGraph(seed, 40);
    for (auto i = static_cast<int32_t>(graph->inputs().size()) - 1; i >= 0; --i) {
      const Value& input = graph->inputs()[static_cast<size_t>(i)]->value;
      if (input.type().device.kind == DeviceKind::kCuda && !input.has_uses()) graph->RemoveInput(i);
    }
    on_cpu += MeasureMemory(*graph).device == DeviceKind::kCpu ? 1 : 0;
    ExpectAsMeasured(*graph);
    if (HasFailure()) FAIL() << seed;
  }
  EXPECT_GT(on_cpu, 10);
}

// A random legal order on paper is what the reference says, and what the graph measures once it is in
// that order.
TEST(LiveMemoryProperty, AnOrderOnPaperIsThatOfTheGraph) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    auto graph = RandomStep(seed);
    Dependencies ties(*graph);
    LiveMemory memory(*graph);
    std::mt19937_64 random(seed);
    std::vector<int32_t> order, ready, missing;
    for (int32_t i = 0; i < ties.count(); ++i) {
      missing.push_back(static_cast<int32_t>(ties.NeededBy(i).size()));
      if (missing.back() == 0) ready.push_back(i);
    }
    Bytes during;
    while (!ready.empty()) {
      std::swap(ready[random() % ready.size()], ready.back());
      order.push_back(ready.back());
      ready.pop_back();
      during.push_back(memory.Run(order.back()));
      for (int32_t user : ties.UsersOf(order.back())) {
        if (--missing[static_cast<size_t>(user)] == 0) ready.push_back(user);
      }
    }
    ASSERT_EQ(during, Reference(*graph, order).InUse()) << seed << "\n" << Print(*graph);
    ApplyOrder(*graph, ties, order);
    ASSERT_EQ(during, Measured(*graph)) << seed << "\n" << Print(*graph);
  }
}

}  // namespace
}  // namespace gt::live_memory_test
