// Nested graphs that are shared, graphs that do not verify, and random graphs; what becomes of the
// others is in concretize.gtir.
#include "gt/passes/cleanup/concretize.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/passes/framework/manager.h"
#include "gt/testing/random_graph.h"

namespace gt::concretize_test {
namespace {

using testing::RandomGraph;

PassRun RunManaged(Graph& graph, const ConcretizeOptions& options = {}) {
  PassList passes;
  passes.push_back(std::make_unique<Concretize>(options));
  // The manager verifies the result and compares hashes with what the pass says it did.
  PassManager manager(std::move(passes), {.write_reproducer = false});
  return manager.Run(graph).runs.at(0);
}

// A graph that the verifier accepts before and after; a second run must find nothing to do.
PassRun RunTwice(Graph& graph, const ConcretizeOptions& options = {}) {
  Verify(graph);
  PassRun run = RunManaged(graph, options);
  EXPECT_FALSE(RunManaged(graph, options).changed) << "a second run changes something";
  EXPECT_EQ(Parse(Print(graph))->Hash(), graph.Hash()) << Print(graph);
  return run;
}

Error ErrorOf(Graph& graph, const ConcretizeOptions& options = {}) {
  try {
    Concretize(options).Run(graph);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {ErrorCode::kInternal, ""};
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "no \"" << (part) << "\" in: " << (text)

std::string GraphWithGuard(std::string_view guard) {
  return fmt::format(
      "graph @g(%x: input \"x\" f32[s0, s1]) {{\n"
      "  symbols {{ s0: input, hint 6, range [2, 64]; s1: input, hint 8; u0: data, hint 1 }}\n"
      "  {}\n  return result \"x\" %x\n}}",
      guard);
}

TEST(Concretize, RejectsGuardsThatDoNotHold) {
  auto graph = Parse(GraphWithGuard(R"(guards { s0 == 5 by "layers.0" "aten::view" })"));
  Error error = ErrorOf(*graph);
  EXPECT_EQ(error.code(), ErrorCode::kHintBreaksGuard);
  EXPECT_CONTAINS(error.message(), "s0 == 5 (of aten::view in module 'layers.0')");
  // Also one of which something would be left.
  graph = Parse(GraphWithGuard(R"(guards { s1 < s0 by "layers.0" "aten::view" })"));
  EXPECT_EQ(ErrorOf(*graph, {.symbols = {"s0"}}).code(), ErrorCode::kHintBreaksGuard);
}

TEST(Concretize, RejectsFactsThatDoNotHold) {
  auto graph = Parse(GraphWithGuard("facts { s0 * 2 == s1 }"));
  Error error = ErrorOf(*graph);
  EXPECT_EQ(error.code(), ErrorCode::kHintBreaksGuard);
  EXPECT_CONTAINS(error.message(), "s0 * 2 == s1");
  // No count makes this one true.
  graph = Parse(GraphWithGuard("facts { u0 + s1 == s0 }"));
  EXPECT_EQ(ErrorOf(*graph).code(), ErrorCode::kHintBreaksGuard);
}

// Functions of FlexAttention, and a node that calls them.
std::string Mask(std::string_view name, std::string_view doc) {
  return fmt::format(
      R"(graph @{}(%b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[], %doc: input "doc" {}) {{
    %mine = aten::index.Tensor(%doc, [%b, %i]) : i32[]
    %other = aten::index.Tensor(%doc, [%b, %j]) : i32[]
    %same = aten::eq.Tensor(%mine, %other) : bool[]
    return result "keep" %same
  }})",
      name, doc);
}

std::string Score(std::string_view name, std::string_view doc, std::string_view body = "") {
  return fmt::format(
      R"(graph @{}(%s: input "s" f32[], %b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[]{}) {{
    {}%scaled = aten::mul.Tensor(%s, 2.0) : f32[]
    return result "score" %scaled
  }})",
      name, doc, body);
}

std::string Flex(std::string_view name, std::string_view size, std::string_view captures,
                 std::string_view score, std::string_view mask) {
  return fmt::format(
      "%{0}q = aten::zeros(size = [{1}, 2, 16, 8], dtype = f32) : f32[{1}, 2, 16, 8]\n"
      "  %{0}, %{0}l = gt::flex_attention(%{0}q, %{0}q, %{0}q, [{2}], score_mod = {3}, mask_mod = "
      "{4}, scale = 0.5) : (f32[{1}, 2, 16, 8]{{256, 8, 16, 1}}, f32[{1}, 2, 16])\n  ",
      name, size, captures, score, mask);
}

constexpr std::string_view kSymbolicDoc = ", %doc: input \"doc\" i32[s0, 16]";
constexpr std::string_view kPlainDoc = ", %doc: input \"doc\" i32[4, 16]";

// %a and %b have masks that know the batch, %c has one that does not, and the score function of %d
// has two attentions of its own inside.
std::unique_ptr<Graph> NestedGraphs() {
  const std::string inside = Flex("in", "s0", "", Score("inner", ""), "none") +
                             Flex("jn", "s0", "", Score("inner2", ""), "none");
  return Parse(fmt::format(
      "graph @g(%doc: input \"doc\" i32[s0, 16], %fix: input \"fix\" i32[4, 16]) {{\n"
      "  symbols {{ s0: input, hint 6, range [2, 64] }}\n  {}{}{}{}return result \"a\" %a\n}}",
      Flex("a", "s0", "%doc", Score("sa", kSymbolicDoc), Mask("ma", "i32[s0, 16]")),
      Flex("b", "s0", "%doc", Score("sb", kSymbolicDoc), Mask("mb", "i32[s0, 16]")),
      Flex("c", "4", "%fix", Score("sc", kPlainDoc), Mask("mc", "i32[4, 16]")),
      Flex("d", "s0", "", Score("sd", "", inside), "none")));
}

GraphRef NestedIn(const Graph& graph, std::string_view value, std::string_view arg) {
  const Node& node = *graph.FindValue(value)->producer();
  return std::get<GraphRef>(node.arg(node.op().schema.Find(arg)));
}

void SetNested(Graph& graph, std::string_view value, std::string_view arg, GraphRef nested) {
  Node& node = *graph.FindValue(value)->producer();
  node.SetArg(node.op().schema.Find(arg), std::move(nested));
}

TEST(Concretize, ReplacesTheSymbolInNestedGraphs) {
  auto graph = NestedGraphs();
  const GraphRef shared = NestedIn(*graph, "a", "mask_mod");
  SetNested(*graph, "b", "mask_mod", shared);
  const GraphRef untouched = NestedIn(*graph, "c", "mask_mod");
  EXPECT_TRUE(RunTwice(*graph).changed);
  const GraphRef image = NestedIn(*graph, "a", "mask_mod");
  EXPECT_NE(image, shared);
  EXPECT_EQ(NestedIn(*graph, "b", "mask_mod"), image);
  EXPECT_EQ(NestedIn(*graph, "c", "mask_mod"), untouched);
  EXPECT_EQ(Print(image->inputs()[4]->value.type(), graph->shapes()), "i32[6, 16]");
  const GraphRef outer = NestedIn(*graph, "d", "score_mod");
  EXPECT_EQ(Print(outer->FindValue("in")->type(), graph->shapes()),
            "f32[6, 2, 16, 8]{256, 8, 16, 1}");
  EXPECT_EQ(&NestedIn(*outer, "in", "score_mod")->shapes(), &graph->shapes());
  // What the passes before hold is as it was.
  EXPECT_EQ(shared->inputs()[4]->value.type().sizes[0], Dim::Symbol(0));
}

// Graphs two levels down: shared ones stay shared, and one that mentions nothing stays itself
// although the graph around it is copied.
TEST(Concretize, KeepsSharingInsideNestedGraphs) {
  auto graph = NestedGraphs();
  auto outer = std::const_pointer_cast<Graph>(NestedIn(*graph, "d", "score_mod"));
  const GraphRef inner = NestedIn(*outer, "in", "score_mod");
  SetNested(*outer, "jn", "score_mod", inner);
  RunTwice(*graph);
  const GraphRef image = NestedIn(*graph, "d", "score_mod");
  EXPECT_NE(image, outer);
  EXPECT_EQ(NestedIn(*image, "in", "score_mod"), inner);
  EXPECT_EQ(NestedIn(*image, "jn", "score_mod"), inner);
}

// The walk that proves that no symbol is left names the place where one is.
TEST(Concretize, FindsSymbolsThatAreLeft) {
  const auto place = [](const std::string& text) {
    auto graph = Parse(text);
    try {
      CheckNoSymbolLeft(*graph, {true, false});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kSymbolLeft);
      return error.message();
    }
    return std::string("nothing");
  };
  const auto graph = [](std::string_view input, std::string_view body) {
    return fmt::format(
        "graph @g(%x: input \"x\" f32[{}], %y: input \"y\" f32[s1, 4]) {{\n"
        "  symbols {{ s0: input, hint 6; s1: input, hint 8 }}\n  {}\n  return result \"x\" %x\n}}",
        input, body);
  };
  EXPECT_EQ(place(graph("s1, 4", "%a = aten::neg(%y) : f32[s1, 4]")), "nothing");
  EXPECT_CONTAINS(place(graph("s0, 4", "")), "input 'x' of graph @g: its type f32[s0, 4]");
  EXPECT_CONTAINS(place(graph("s0, 4", "")), "still mentions one of s0,");
  EXPECT_CONTAINS(
      place(graph("8", "%a = aten::zeros(size = [8]) : f32[8]{s0} {module = \"layers.0\"}")),
      "node %a (aten::zeros, module 'layers.0'): the type f32[8]{s0} of %a");
  EXPECT_CONTAINS(place(graph("8", "%a = aten::zeros(size = [s0]) : f32[8]")), "argument 'size'");
  EXPECT_CONTAINS(place(graph("8", "%a = aten::mul.Tensor(%x, s0) : f32[8]")), "argument 'other'");
  EXPECT_CONTAINS(
      place(graph("8", "%a = aten::slice.Tensor(%x, start = 1) : f32[7] offset [s0 - 5]")),
      "node %a (aten::slice.Tensor, module ''): the offset of its view");
  EXPECT_CONTAINS(place(graph("8", "facts { s0 == s1 - 2 }")), "the fact s0 == s1 - 2");
  EXPECT_CONTAINS(place(graph("8", "guards { s0 < s1 by \"m\" \"aten::mm\" }")),
                  "the guard s0 < s1 of aten::mm in module 'm'");
  EXPECT_CONTAINS(
      place(graph("4, 16", Flex("a", "4", "%x", Score("s", kPlainDoc), Mask("m", "i32[s0, 16]")))),
      "input 'doc' of graph @m: its type i32[s0, 16]");
}

// Graphs of every kind of argument and operator: valid, printable and free of input symbols
// afterwards.
TEST(Concretize, HoldsForRandomGraphs) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    auto graph = RandomGraph(seed);
    const int64_t nodes = graph->node_count();
    RunTwice(*graph);
    EXPECT_EQ(graph->node_count(), nodes);
    EXPECT_TRUE(graph->shapes().guards().empty());
  }
}

}  // namespace
}  // namespace gt::concretize_test
