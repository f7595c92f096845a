#include "gt/ir/graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gt/base/error.h"
#include "gt/ir/builder.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/testing/random_graph.h"

namespace gt::graph_test {
namespace {

using testing::RandomGraph;

class GraphTest : public ::testing::Test {
 protected:
  TensorType F32(Shape sizes) {
    return ContiguousType(DType::kFloat32, {}, std::move(sizes), graph.shapes());
  }
  Node* Neg(Value* x, Node* before = nullptr) {
    return NodeBuilder(graph, "aten::neg").Set("self", x).Insert(before);
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Node* node : graph.nodes()) names.push_back(node->result()->name());
    return names;
  }

  Graph graph;
  Value* x = graph.AddInput(InputRole::kInput, "x", F32({2, 3}));
};

using Strings = std::vector<std::string>;

TEST_F(GraphTest, InsertsMovesAndErases) {
  Node* a = Neg(x);
  Node* b = Neg(x);
  Node* c = Neg(x, b);
  EXPECT_EQ(Names(), (Strings{"neg", "neg_3", "neg_2"}));
  graph.MoveBefore(a, nullptr);
  EXPECT_EQ(Names(), (Strings{"neg_3", "neg_2", "neg"}));
  graph.MoveBefore(a, c);
  EXPECT_EQ(Names(), (Strings{"neg", "neg_3", "neg_2"}));
  graph.MoveBefore(c, c);
  EXPECT_EQ(graph.NumberNodes(), 3);
  EXPECT_EQ(b->number(), 2);
  graph.Erase(c);
  EXPECT_EQ(Names(), (Strings{"neg", "neg_2"}));
  EXPECT_EQ(graph.node_count(), 2);
  EXPECT_EQ(graph.first(), a);
  EXPECT_EQ(graph.last(), b);
  graph.Erase(a);
  graph.Erase(b);
  EXPECT_EQ(graph.first(), nullptr);
  EXPECT_EQ(graph.last(), nullptr);
}

// A name is never reused, even when its value is gone: dumps of successive passes could not be
// compared otherwise.
TEST_F(GraphTest, NamesStayUnique) {
  Node* a = Neg(x);
  EXPECT_EQ(graph.FindValue("neg"), a->result());
  graph.Erase(a);
  EXPECT_EQ(graph.FindValue("neg"), nullptr);
  EXPECT_NE(Neg(x)->result()->name(), "neg");
  Value* w = graph.AddInput(InputRole::kParameter, "layers.0.wq/weight", F32({1}));
  EXPECT_EQ(w->name(), "layers.0.wq_weight");
  EXPECT_EQ(graph.AddInput(InputRole::kParameter, "x", F32({1}))->name(), "x_2");
  EXPECT_THROW(graph.AddInput(InputRole::kInput, "y", F32({1}), "x"), Error);
}

TEST_F(GraphTest, UsesFollowOperands) {
  Node* a = Neg(x);
  Node* add = NodeBuilder(graph, "aten::add.Tensor").Set("self", x).Set("other", x).Insert();
  graph.AddOutput(OutputRole::kResult, "x", x);
  const auto count = [](const Value* value) {
    int uses = 0;
    for (const Use& use : value->uses()) {
      EXPECT_EQ(use.value(), value);
      ++uses;
    }
    return uses;
  };
  EXPECT_EQ(count(x), 4);
  add->SetOperand(1, a->result());
  EXPECT_EQ(count(x), 3);
  EXPECT_TRUE(a->result()->has_one_use());
  Node* c = Neg(a->result());
  a->result()->ReplaceAllUses(x);
  EXPECT_FALSE(a->has_uses());
  EXPECT_EQ(c->operand(0), x);
  EXPECT_EQ(count(x), 5);
  EXPECT_THROW(x->ReplaceAllUses(x), Error);
  graph.Erase(a);
  x->ReplaceAllUses(c->result());  // c's own operand included: the caller would put it back
  EXPECT_FALSE(x->has_uses());
  EXPECT_EQ(graph.outputs()[0]->value(), c->result());
}

TEST_F(GraphTest, WalkingToleratesErasingAndInserting) {
  for (int i = 0; i < 5; ++i) Neg(x);
  for (Node* node : graph.nodes()) {
    Neg(x, node);
    graph.Erase(node);
  }
  EXPECT_EQ(graph.node_count(), 5);
}

TEST_F(GraphTest, InputsCanLeave) {
  Value* y = graph.AddInput(InputRole::kInput, "y", F32({1}));
  Value* z = graph.AddInput(InputRole::kInput, "z", F32({1}));
  Neg(z);
  graph.RemoveInput(1);
  (void)y;
  EXPECT_EQ(z->index(), 1);
  EXPECT_EQ(graph.FindValue("y"), nullptr);
  EXPECT_THROW(graph.RemoveInput(1), Error);
}

TEST_F(GraphTest, InsertInfersTypesOffsetsAndSymbols) {
  Node* split = NodeBuilder(graph, "aten::split.Tensor")
                    .Set("self", x)
                    .Set("split_size", Dim(2))
                    .Set("dim", Dim(1))
                    .Insert();
  ASSERT_EQ(split->result_count(), 2);
  EXPECT_EQ(split->result(1)->type().sizes, (Shape{2, 1}));
  EXPECT_EQ(split->view_offsets()[1], Dim(2));
  EXPECT_EQ(InferTypes(*split)[0], split->result(0)->type());
  Value* counts = graph.AddInput(InputRole::kInput, "counts",
                                 ContiguousType(DType::kInt64, {}, {3}, graph.shapes()));
  Node* read = NodeBuilder(graph, "gt::read_ints").Set("self", counts).Insert();
  EXPECT_EQ(read->bound_symbols().size(), 3u);
  EXPECT_EQ(read->result_count(), 0);
}

// A name that is taken is refused, and leaves no trace of the node that wanted it.
TEST_F(GraphTest, TakenNamesAreRefused) {
  Node* neg = Neg(x);
  const uint64_t before = graph.Hash();
  Graph::Typed typed = TypedOf(*neg);
  typed.result_names = {neg->result()->name()};
  try {
    graph.InsertTyped(SpecOf(*neg), typed);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDuplicateValue);
  }
  EXPECT_EQ(graph.Hash(), before);
  EXPECT_TRUE(x->has_one_use());
  EXPECT_EQ(graph.FindValue(neg->result()->name()), neg->result());
}

// Nodes of any size are added and removed.
TEST_F(GraphTest, NodesWithManyOperands) {
  for (int32_t count : {1, 10, 100, 1000, 100, 10, 1}) {
    std::vector<Value*> values(static_cast<size_t>(count), x);
    Node* cat = NodeBuilder(graph, "aten::cat").Set("tensors", std::move(values)).Insert();
    EXPECT_EQ(cat->operand_count(), count);
    EXPECT_EQ(graph.Clone()->Hash(), graph.Hash());
    graph.Erase(cat);
  }
  EXPECT_FALSE(x->has_uses());
}

TEST(GraphCloneTest, CopiesAreEqualAndIndependent) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto graph = RandomGraph(seed);
    const auto copy = graph->Clone();
    ASSERT_EQ(copy->Hash(), graph->Hash()) << seed;
    ASSERT_EQ(Print(*copy), Print(*graph)) << seed;
    ASSERT_NO_THROW(Verify(*copy)) << seed;
    const std::string before = Print(*graph);
    copy->shapes().AddInputSymbol(3);
    while (copy->last() != nullptr && !copy->last()->has_uses()) copy->Erase(copy->last());
    copy->first()->meta().module = Name("changed");
    ASSERT_EQ(Print(*graph), before) << seed;
    ASSERT_NE(copy->Hash(), graph->Hash()) << seed;
  }
}

// Hashes are compared between processes and stored, so they depend on nothing but the graph.
TEST(GraphHashTest, IgnoresNamesOfValues) {
  const std::string text = R"(graph @g(%x: input "x" f32[2]) {
  %NAME = aten::neg(%x) : f32[2]
  return result "r" %NAME
})";
  const auto with_name = [&](const std::string& name) {
    std::string result = text;
    for (size_t at; (at = result.find("NAME")) != std::string::npos;) result.replace(at, 4, name);
    return Parse(result)->Hash();
  };
  EXPECT_EQ(with_name("a"), with_name("b"));
}

// Whatever single thing is changed, the hash tells.
TEST(GraphHashTest, SeesEveryChange) {
  const std::string text = R"(graph @g(
    %x: input "x" f32[s0, 8],
    %c: input "c" i64[2],
    %q: input "q" f32[2, 2, 16, 8]) {
  symbols { s0: input, hint 4, range [2, 64]; u0: data, hint 2; u1: data, hint 3 }
  facts { u0 + u1 == s0 }
  guards { s0 != 3 by "m" "aten::mm" }
  gt::read_ints(%c) binds [u0, u1]
  %a = aten::slice.Tensor(%x, dim = 1, start = 1, end = 3) : f32[s0, 2]{8, 1} offset [1]
  %b = aten::add.Tensor(%a, %a, alpha = 2.0) : f32[s0, 2] {module = "m", phase = loss, seq = 3, source = "f:1", ep = compute, exchange = exchange, recompute = offload, bucket = "k", chunk = {id = 1, region = "r", role = body, original = "o", proof = symbolic_size}}
  %d = aten::neg(%b) : f32[s0, 2]
  %o, %l = gt::flex_attention(%q, %q, %q, [], score_mod = graph @score(%s: input "s" f32[], %1: input "b" i32[], %2: input "h" i32[], %3: input "q" i32[], %4: input "k" i32[]) {
    %m = aten::mul.Tensor(%s, 2.0) : f32[]
    return result "score" %m
  }, mask_mod = none, scale = 0.5) : (f32[2, 2, 16, 8]{256, 8, 32, 1}, f32[2, 2, 16])
  %p = aten::gelu(%d, approximate = "tanh") : f32[s0, 2]
  %z = aten::_to_copy(%p, dtype = bf16, device = "cpu") : bf16[s0, 2]
  return saved "d" %d, result "z" %z
})";
  const auto original = Parse(text)->Hash();
  std::set<uint64_t> hashes = {original};
  const std::pair<const char*, const char*> changes[] = {
      {"@g(", "@h("},
      {"%x: input \"x\"", "%x: buffer \"x\""},
      {"%x: input \"x\"", "%x: input \"y\""},
      {"i64[2],", "i32[2],"},
      {"i64[2],", "i64[2] @cuda,"},
      {"i64[2],", "i64[2]{3},"},
      {"hint 4", "hint 5"},
      {"[2, 64]; u0", "[3, 64]; u0"},
      {"[2, 64]; u0", "[2, 65]; u0"},
      {"u0 + u1 == s0", "u0 == s0"},
      {"s0 != 3", "s0 == 3"},
      {"s0 != 3", "s0 != 5"},
      {"by \"m\"", "by \"n\""},
      {"\"aten::mm\"", "\"aten::bmm\""},
      {"[u0, u1]", "[u1, u0]"},
      {"start = 1", "start = 2"},
      {"offset [1]", "offset [2]"},
      {"alpha = 2.0", "alpha = 2"},
      {"alpha = 2.0", "alpha = 2.5"},
      {"f32[s0, 2] {module", "f32[s0, 3] {module"},
      {"module = \"m\"", "module = \"n\""},
      {"phase = loss", "phase = backward"},
      {"seq = 3", "seq = 4"},
      {"f:1", "f:2"},
      {"ep = compute", "ep = combine"},
      {"exchange = exchange", "exchange = count_sync"},
      {"recompute = offload", "recompute = must_save"},
      {"bucket = \"k\"", "bucket = \"j\""},
      {"id = 1", "id = 2"},
      {"region = \"r\"", "region = \"q\""},
      {"role = body", "role = chunk_input"},
      {", original = \"o\"", ", original = \"p\""},
      {"symbolic_size", "output_partial_sum"},
      {"role = body", "role = body, producer = eager"},
      {"role = body", "role = body, backward"},
      {", chunk = {id = 1, region = \"r\", role = body, original = \"o\", proof = symbolic_size}",
       ""},
      {"aten::neg(%b)", "aten::exp(%b)"},
      {"aten::neg(%b)", "aten::neg(%a)"},
      {"%s, 2.0", "%s, 3.0"},
      {"scale = 0.5", "scale = -0.0"},
      {"\"tanh\"", "\"none\""},
      {"dtype = bf16, ", "dtype = f16, "},
      {"device = \"cpu\"", "device = \"cuda\""},
      {"device = \"cpu\"", "device = \"cpu\", non_blocking = true"},
      {"device = \"cpu\"", "device = \"cpu\", memory_format = preserve"},
      {"saved \"d\"", "result \"d\""},
      {"saved \"d\"", "saved \"e\""},
      {"saved \"d\" %d", "saved \"d\" %b"},
      {"saved \"d\" %d, ", ""},
  };
  for (const auto& [from, to] : changes) {
    std::string changed = text;
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, std::string(from).size(), to);
    EXPECT_TRUE(hashes.insert(Parse(changed)->Hash()).second) << from << " -> " << to;
  }
}

TEST(GraphHashTest, SeesTheOrderOfNodes) {
  const auto graph = RandomGraph(11);
  const uint64_t before = graph->Hash();
  graph->MoveBefore(graph->last(), graph->first());
  EXPECT_NE(graph->Hash(), before);
}

}  // namespace
}  // namespace gt::graph_test
