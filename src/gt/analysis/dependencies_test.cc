// What ties nodes to each other, and orders that keep to it or do not.
#include "gt/analysis/dependencies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/testing/random_graph.h"

namespace gt::dependencies_test {
namespace {

using testing::RandomGraph;

using Numbers = std::vector<int32_t>;

Numbers ListOf(std::span<const int32_t> row) { return {row.begin(), row.end()}; }

std::unique_ptr<Graph> Verified(const std::string& text) {
  auto graph = Parse(text);
  Verify(*graph);
  return graph;
}

// Nodes that compute from %x: f32[4] and %n: i64[2], with the data symbols u0 and u1.
std::unique_ptr<Graph> Step(const std::string& nodes) {
  return Verified(
      "graph @g(%x: input \"x\" f32[4], %n: input \"n\" i64[2]) {\n" +
      std::string(nodes.find("u0") == std::string::npos
                      ? ""
                      : "symbols { u0: data, hint 2, range [0, 3]; u1: data, hint 3 }\n") +
      nodes + "\n  return\n}\n");
}

// What each node of the graph needs, one list for each.
std::vector<Numbers> NeedsOf(Graph& graph) {
  Dependencies dependencies(graph);
  std::vector<Numbers> needs;
  for (int32_t i = 0; i < dependencies.count(); ++i) {
    needs.push_back(ListOf(dependencies.NeededBy(i)));
  }
  return needs;
}

// The error of an order that is not legal; the graph is as it was.
std::string Refused(Graph& graph, const Numbers& order) {
  const std::string before = Print(graph);
  Dependencies dependencies(graph);
  try {
    ApplyOrder(graph, dependencies, order);
  } catch (const Error& error) {
    EXPECT_EQ(CodeName(error.code()), CodeName(ErrorCode::kIllegalOrder));
    EXPECT_EQ(Print(graph), before) << "something was moved";
    return error.message();
  }
  ADD_FAILURE() << "the order was taken:\n" << Print(graph);
  return "";
}

// Inputs tie nothing, a value used twice ties once, and each of several results ties.
TEST(Dependencies, UsersComeBehindProducers) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4]
  %s, %t = aten::split.Tensor(%a, split_size = 2) : (f32[2], f32[2]) offset [0, 2]
  %b = aten::mul.Tensor(%t, %t) : f32[2]
  %c = aten::mul.Tensor(%s, %b) : f32[2]
  %d = aten::cat([%a, %x, %c]) : f32[10])");
  EXPECT_EQ(NeedsOf(*graph), (std::vector<Numbers>{{}, {0}, {1}, {1, 2}, {0, 3}}));
}

TEST(Dependencies, NumbersInArgumentsAreRead) {
  auto graph = Step(R"(
  gt::read_ints(%n) binds [u0, u1]
  %a = aten::neg(%x) : f32[4]
  %b = aten::add.Scalar(%x, other = u0) : f32[4]
  %c = aten::mul.Tensor(%a, %b) : f32[4])");
  EXPECT_EQ(NeedsOf(*graph), (std::vector<Numbers>{{}, {}, {0}, {1, 2}}));
}

// Also where no argument mentions them: the node needs memory of that size.
TEST(Dependencies, NumbersInResultTypesAreRead) {
  auto graph = Step(R"(
  gt::read_ints(%n) binds [u0, u1]
  %z = aten::zeros(size = [2, u1]) : f32[2, u1]
  %a = aten::neg(%z) : f32[2, u1]
  %t = aten::t(%a) : f32[u1, 2]{1, max(1, u1)})");
  EXPECT_EQ(NeedsOf(*graph), (std::vector<Numbers>{{}, {0}, {0, 1}, {0, 2}}));
}

// A column: its size is known, how far apart its elements are is not.
TEST(Dependencies, NumbersInStridesAreRead) {
  auto graph = Verified(R"(graph @g(%n: input "n" i64[1]) {
  symbols { u0: data, hint 2, range [1, 8] }
  gt::read_ints(%n) binds [u0]
  %z = aten::zeros(size = [2, u0]) : f32[2, u0]
  %c = aten::select.int(%z, dim = 1, index = 0) : f32[2]{u0}
  %d = aten::neg(%c) : f32[2]
  return
})");
  EXPECT_EQ(NeedsOf(*graph), (std::vector<Numbers>{{}, {0}, {0, 1}, {2}}));
}

TEST(Dependencies, NumbersInViewOffsetsAreRead) {
  auto graph = Step(R"(
  gt::read_ints(%n) binds [u0, u1]
  %a = aten::select.int(%x, dim = 0, index = u0) : f32[] offset [u0]
  %b = aten::neg(%a) : f32[])");
  EXPECT_EQ(NeedsOf(*graph), (std::vector<Numbers>{{}, {0}, {1}}));
  // With a plain index only the offset says it.
  Node* select = graph->FindValue("a")->producer();
  select->SetArg(2, Dim(1));
  EXPECT_EQ(NeedsOf(*graph)[1], (Numbers{0}));
}

// Each number ties to the node that reads it, and to no other reader.
TEST(Dependencies, EveryNumberHasAReader) {
  auto graph = Step(R"(
  %first, %second = aten::split.Tensor(%n, split_size = 1) : (i64[1], i64[1]) offset [0, 1]
  gt::read_ints(%first) binds [u0]
  gt::read_ints(%second) binds [u1]
  %a = aten::zeros(size = [u1]) : f32[u1]
  %b = aten::zeros(size = [u0]) : f32[u0]
  %c = aten::zeros(size = [u0 + u1]) : f32[u0 + u1])");
  EXPECT_EQ(NeedsOf(*graph), (std::vector<Numbers>{{}, {0}, {0}, {2}, {1}, {1, 2}}));
}

// A function on single numbers runs when the node that holds it does.
TEST(Dependencies, NumbersInNestedGraphsAreRead) {
  auto graph = std::make_unique<Graph>("g");
  auto contiguous = [&](DType dtype, Shape sizes) {
    return ContiguousType(dtype, Device(), std::move(sizes), graph->shapes());
  };
  Value* n = graph->AddInput(InputRole::kInput, "n", contiguous(DType::kInt64, {1}), "n");
  Value* x =
      graph->AddInput(InputRole::kInput, "x", contiguous(DType::kFloat32, {2, 2, 16, 8}), "x");
  Node* read = NodeBuilder(*graph, "gt::read_ints").Set("self", n).Insert();
  auto score = std::make_shared<Graph>("score");
  score->ShareShapes(*graph);
  Value* s = score->AddInput(InputRole::kInput, "score", contiguous(DType::kFloat32, {}));
  for (const char* name : {"b", "h", "q", "k"}) {
    score->AddInput(InputRole::kInput, name, contiguous(DType::kInt32, {}));
  }
  Value* scaled = NodeBuilder(*score, "aten::mul.Tensor")
                      .Set("self", s)
                      .Set("other", Argument(Dim::Symbol(read->bound_symbols()[0])))
                      .Result();
  score->AddOutput(OutputRole::kResult, "score", scaled);
  NodeBuilder(*graph, "gt::flex_attention")
      .Set("query", x)
      .Set("key", x)
      .Set("value", x)
      .Set("captures", std::vector<Value*>{})
      .Set("score_mod", GraphRef(score))
      .Set("scale", 0.125)
      .Insert();
  Verify(*graph);
  EXPECT_EQ(NeedsOf(*graph), (std::vector<Numbers>{{}, {0}}));
  EXPECT_NE(Refused(*graph, {1, 0}), "");
}

TEST(Dependencies, RandomOperatorsKeepTheirOrder) {
  auto graph = Step(R"(
  %a = aten::random(%x) : f32[4]
  %b = aten::neg(%x) : f32[4]
  %c = aten::random(%x) : f32[4]
  %d = aten::random(%a) : f32[4])");
  EXPECT_EQ(NeedsOf(*graph), (std::vector<Numbers>{{}, {}, {0}, {0, 2}}));
}

TEST(Dependencies, SideEffectsKeepTheirOrder) {
  auto graph = Step(R"(
  %a = aten::random(%x) : f32[4]
  aten::_assert_async(%x)
  %b = aten::random(%x) : f32[4]
  aten::_assert_async(%x)
  aten::_assert_async(%b))");
  EXPECT_EQ(NeedsOf(*graph), (std::vector<Numbers>{{}, {}, {0}, {1}, {2, 3}}));
}

// Neither in one group nor in several: every rank runs the same graph.
TEST(Dependencies, CollectivesAreNotTied) {
  auto graph = Step(R"(
  %a = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "g") : f32[4]
  %b = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "g") : f32[4]
  %c = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "h") : f32[4]
  %v = _c10d_functional::wait_tensor(%a) : f32[4]
  %w = _c10d_functional::wait_tensor(%b) : f32[4])");
  EXPECT_EQ(NeedsOf(*graph), (std::vector<Numbers>{{}, {}, {}, {0}, {1}}));
  Dependencies dependencies(*graph);
  EXPECT_TRUE(ApplyOrder(*graph, dependencies, Numbers{2, 1, 4, 0, 3}));
  Verify(*graph);
}

// Reads of the same tensor neither: they change nothing.
TEST(Dependencies, ReadsAreNotTied) {
  auto graph = Step(R"(
  %m = aten::sum(%n) : i64[]
  gt::read_ints(%m) binds [u0]
  gt::read_ints(%m) binds [u1])");
  EXPECT_EQ(NeedsOf(*graph), (std::vector<Numbers>{{}, {0}, {0}}));
}

TEST(Dependencies, OfAnEmptyGraph) {
  auto graph = Step("");
  Dependencies dependencies(*graph);
  EXPECT_EQ(dependencies.count(), 0);
  EXPECT_FALSE(ApplyOrder(*graph, dependencies, Numbers{}));
}

std::string NamesOf(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node* node : graph.nodes()) {
    names.push_back(node->result_count() > 0 ? node->result()->name() : node->op().name.str());
  }
  return Join(names, " ");
}

constexpr const char* kFour = R"(
  %a = aten::neg(%x) : f32[4]
  %b = aten::exp(%x) : f32[4]
  %c = aten::neg(%b) : f32[4]
  %d = aten::mul.Tensor(%a, %c) : f32[4])";

TEST(ApplyOrder, PutsNodesInOrder) {
  auto graph = Step(kFour);
  Dependencies dependencies(*graph);
  EXPECT_TRUE(ApplyOrder(*graph, dependencies, Numbers{1, 2, 0, 3}));
  EXPECT_EQ(NamesOf(*graph), "b c a d");
  Verify(*graph);
}

TEST(ApplyOrder, SaysWhenNothingChanged) {
  auto graph = Step(kFour);
  const uint64_t hash = graph->Hash();
  Dependencies dependencies(*graph);
  EXPECT_FALSE(ApplyOrder(*graph, dependencies, Numbers{0, 1, 2, 3}));
  EXPECT_EQ(graph->Hash(), hash);
  // Also when only the last two change places.
  auto other = Step("  %a = aten::neg(%x) : f32[4]\n  %b = aten::exp(%x) : f32[4]");
  Dependencies ties(*other);
  EXPECT_TRUE(ApplyOrder(*other, ties, Numbers{1, 0}));
}

TEST(ApplyOrder, NamesNodesModulesAndTheValueBetween) {
  auto graph = Step(R"(
  %a = aten::neg(%x) : f32[4] {module = "layers.0.wq"}
  %b = aten::exp(%x) : f32[4]
  %c = aten::mul.Tensor(%b, %a) : f32[4] {module = "layers.1.wo", phase = backward})");
  EXPECT_EQ(Refused(*graph, {1, 2, 0}),
            "%c (module 'layers.1.wo', backward) would run before %a (module 'layers.0.wq'): it "
            "uses %a");
  // Of several that are missing, one is named.
  EXPECT_EQ(Refused(*graph, {2, 1, 0}),
            "%c (module 'layers.1.wo', backward) would run before %a (module 'layers.0.wq'): it "
            "uses %a");
  EXPECT_EQ(Refused(*graph, {0, 2, 1}),
            "%c (module 'layers.1.wo', backward) would run before %b (module ''): it uses %b");
}

TEST(ApplyOrder, NamesTheOtherTies) {
  auto read = Step(R"(
  gt::read_ints(%n) binds [u0, u1] {module = "m"}
  %z = aten::zeros(size = [u0]) : f32[u0])");
  EXPECT_EQ(Refused(*read, {1, 0}),
            "%z (module '', forward) would run before gt::read_ints (module 'm'): it mentions a "
            "number that it reads");
  auto random = Step("  %a = aten::random(%x) : f32[4]\n  %b = aten::random(%x) : f32[4]");
  EXPECT_EQ(Refused(*random, {1, 0}),
            "%b (module '', forward) would run before %a (module ''): it draws from the same "
            "generator after it");
  auto effect = Step("  aten::_assert_async(%x)\n  aten::_assert_async(%n)");
  EXPECT_EQ(Refused(*effect, {1, 0}),
            "aten::_assert_async (module '', forward) would run before aten::_assert_async (module "
            "''): it has a side effect that comes after it");
}

// The end of the order is looked at before its beginning is applied.
TEST(ApplyOrder, MovesNothingWhenTheEndIsIllegal) {
  auto graph = Step(kFour);
  Refused(*graph, {1, 2, 3, 0});
  EXPECT_EQ(NamesOf(*graph), "a b c d");
}

TEST(ApplyOrder, MustNameEveryNodeOnce) {
  auto graph = Step(kFour);
  Dependencies dependencies(*graph);
  EXPECT_THROW(ApplyOrder(*graph, dependencies, Numbers{0, 1, 2}), Error);
  EXPECT_THROW(ApplyOrder(*graph, dependencies, Numbers{0, 1, 1, 2}), Error);
  EXPECT_EQ(NamesOf(*graph), "a b c d");
}

// Ties as the header lists them, found in another way: for each pair of nodes.
bool IsTied(const Node& earlier, const Node& later) {
  for (int32_t i = 0; i < later.operand_count(); ++i) {
    if (later.operand(i)->producer() == &earlier) return true;
  }
  std::set<SymbolId> mentioned;
  auto add = [&](const Dim& dim) { dim.ForEachSymbol([&](SymbolId s) { mentioned.insert(s); }); };
  auto add_all = [&](std::span<const Dim> dims) { std::for_each(dims.begin(), dims.end(), add); };
  for (const Argument& arg : later.args()) {
    if (const auto* dim = std::get_if<Dim>(&arg)) add(*dim);
    if (const auto* shape = std::get_if<Shape>(&arg)) add_all({shape->begin(), shape->end()});
  }
  for (int32_t i = 0; i < later.result_count(); ++i) {
    const TensorType& type = later.result(i)->type();
    for (const Shape* shape : {&type.sizes, &type.strides}) add_all({shape->begin(), shape->end()});
  }
  add_all(later.view_offsets());
  for (SymbolId symbol : earlier.bound_symbols()) {
    if (mentioned.contains(symbol)) return true;
  }
  return false;
}

// Of random graphs: every tie exists, with those of generators and effects, and no other; rows are
// ascending, each entry once; users are what needs the other way round.
TEST(DependenciesProperty, RowsAreTheTies) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    auto graph = RandomGraph(seed, 40);
    Dependencies dependencies(*graph);
    ASSERT_EQ(dependencies.count(), graph->node_count());
    std::vector<Numbers> users(static_cast<size_t>(dependencies.count()));
    int32_t random = -1, effect = -1;
    for (int32_t later = 0; later < dependencies.count(); ++later) {
      const Node& node = *dependencies.node(later);
      Numbers expected;
      for (int32_t earlier = 0; earlier < later; ++earlier) {
        const bool in_turn =
            (node.op().random && earlier == random) || (node.op().side_effect && earlier == effect);
        if (in_turn || IsTied(*dependencies.node(earlier), node)) expected.push_back(earlier);
      }
      if (node.op().random) random = later;
      if (node.op().side_effect) effect = later;
      ASSERT_EQ(ListOf(dependencies.NeededBy(later)), expected) << seed << "\n" << Print(*graph);
      for (int32_t earlier : expected) users[static_cast<size_t>(earlier)].push_back(later);
    }
    for (int32_t i = 0; i < dependencies.count(); ++i) {
      ASSERT_EQ(ListOf(dependencies.UsersOf(i)), users[static_cast<size_t>(i)]) << seed;
    }
  }
}

// An order that takes any node whose needs are done is legal, for the verifier too; `changed` is what
// the hash says; going back gives the graph as it was.
TEST(ApplyOrderProperty, LegalOrdersVerifyAndCanBeTakenBack) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    auto graph = RandomGraph(seed, 30);
    const uint64_t hash = graph->Hash();
    Dependencies dependencies(*graph);
    std::mt19937_64 random(seed);
    Numbers order, ready, missing;
    for (int32_t i = 0; i < dependencies.count(); ++i) {
      missing.push_back(static_cast<int32_t>(dependencies.NeededBy(i).size()));
      if (missing.back() == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      std::swap(ready[random() % ready.size()], ready.back());
      const int32_t next = ready.back();
      ready.pop_back();
      order.push_back(next);
      for (int32_t user : dependencies.UsersOf(next)) {
        if (--missing[static_cast<size_t>(user)] == 0) ready.push_back(user);
      }
    }
    Numbers in_place(order.size());
    std::iota(in_place.begin(), in_place.end(), 0);
    EXPECT_EQ(ApplyOrder(*graph, dependencies, order), order != in_place);
    EXPECT_EQ(graph->Hash() != hash, order != in_place);
    Verify(*graph);
    Dependencies of_new(*graph);
    Numbers back(order.size());
    for (size_t i = 0; i < order.size(); ++i)
      back[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
    ApplyOrder(*graph, of_new, back);
    EXPECT_EQ(graph->Hash(), hash) << seed;
  }
}

// Exchanging two neighbours is refused exactly when they are tied.
TEST(ApplyOrderProperty, NeighboursChangePlacesUnlessTied) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto graph = RandomGraph(seed, 25);
    const std::string text = Print(*graph);
    for (int32_t i = 0; i + 1 < graph->node_count(); ++i) {
      auto copy = Parse(text);
      Dependencies dependencies(*copy);
      Numbers order(static_cast<size_t>(dependencies.count()));
      std::iota(order.begin(), order.end(), 0);
      std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(i) + 1]);
      auto needs = ListOf(dependencies.NeededBy(i + 1));
      if (std::find(needs.begin(), needs.end(), i) == needs.end()) {
        EXPECT_TRUE(ApplyOrder(*copy, dependencies, order));
        Verify(*copy);
      } else {
        EXPECT_THROW(ApplyOrder(*copy, dependencies, order), Error);
        EXPECT_EQ(Print(*copy), text);
      }
    }
  }
}

}  // namespace
}  // namespace gt::dependencies_test
