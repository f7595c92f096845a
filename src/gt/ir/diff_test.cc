#include "gt/ir/diff.h"

#include <gtest/gtest.h>

#include <string>

#include "gt/ir/text.h"
#include "gt/testing/random_graph.h"

namespace gt::diff_test {
namespace {

using testing::RandomGraph;

std::unique_ptr<Graph> WithBody(const std::string& body) {
  return Parse("graph @g(%x: input \"x\" f32[2], %c: input \"c\" i64[1]) {\n" + body + "\n}");
}

TEST(DiffTest, EqualGraphsDoNotDiffer) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto graph = RandomGraph(seed);
    const GraphDiff diff = Diff(*graph, *graph->Clone());
    EXPECT_TRUE(diff.empty()) << Print(diff);
    EXPECT_EQ(Print(diff), "no difference\n");
  }
}

TEST(DiffTest, ShowsWhatCameWentAndChanged) {
  const auto before = WithBody(R"(
  %a = aten::neg(%x) : f32[2] {module = "m"}
  %b = aten::exp(%a) : f32[2] {module = "m"}
  %c1 = aten::exp(%b) : f32[2] {module = "n"}
  return result "r" %c1)");
  const auto after = WithBody(R"(
  %b = aten::exp(%x) : f32[2] {module = "m"}
  %d = aten::sin(%b) : f32[2] {module = "k"}
  %c1 = aten::exp(%b) : f32[2] {module = "n"}
  return result "r" %d)");
  const GraphDiff diff = Diff(*before, *after);
  EXPECT_EQ(diff.by_operator.size(), 2u);
  EXPECT_EQ(diff.by_operator.at("aten::neg"), (GraphDiff::Count{1, 0}));
  EXPECT_EQ(diff.by_operator.at("aten::sin"), (GraphDiff::Count{0, 1}));
  EXPECT_EQ(diff.by_module.size(), 2u);
  EXPECT_EQ(diff.by_module.at("m"), (GraphDiff::Count{1, 0}));
  EXPECT_EQ(diff.by_module.at("k"), (GraphDiff::Count{0, 1}));
  EXPECT_EQ(Print(diff), R"(2 added, 2 removed, 1 changed, 0 moved
  aten::neg: 1 -> 0
  aten::sin: 0 -> 1
  in module 'k': -0 +1
  in module 'm': -1 +0
- output result "r" %c1
- %a = aten::neg(%x) : f32[2] {module = "m"}
+ output result "r" %d
+ %d = aten::sin(%b) : f32[2] {module = "k"}
~ %b = aten::exp(%a) : f32[2] {module = "m"}
  %b = aten::exp(%x) : f32[2] {module = "m"}
)");
}

TEST(DiffTest, ShowsRolesOfModules) {
  const auto before = Parse("graph @g() {\n  modules { block: \"h.0\", \"h.1\" }\n  return\n}");
  const auto after =
      Parse("graph @g() {\n  modules { block: \"h.0\"; head: \"h.1\" }\n  return\n}");
  const GraphDiff diff = Diff(*before, *after);
  EXPECT_EQ(diff.removed, std::vector<std::string>{"module h.1: block"});
  EXPECT_EQ(diff.added, std::vector<std::string>{"module h.1: head"});
}

TEST(DiffTest, CountsMovedNodes) {
  const auto before = WithBody(R"(
  %a = aten::neg(%x) : f32[2]
  %b = aten::neg(%x) : f32[2]
  %c1 = aten::neg(%x) : f32[2]
  %d = aten::neg(%x) : f32[2]
  return)");
  const auto after = before->Clone();
  after->MoveBefore(after->last(), after->first());
  EXPECT_EQ(Diff(*before, *after).moved, 1);
  EXPECT_FALSE(Diff(*before, *after).empty());
}

TEST(DiffTest, NodesWithoutResults) {
  const auto text = [](const std::string& nodes) {
    return Parse(
        "graph @g(%x: input \"x\" bool[], %c: input \"c\" i64[1]) {\n"
        "  symbols { u0: data, hint 2 }\n" +
        nodes + "return\n}");
  };
  const auto before =
      text("gt::read_ints(%c) binds [u0]\naten::_assert_async(%x)\naten::_assert_async(%x)\n");
  const auto after =
      text("aten::_assert_async(%x)\ngt::read_ints(%c) binds [u0] {module = \"m\"}\n");
  const GraphDiff diff = Diff(*before, *after);
  ASSERT_EQ(diff.removed.size(), 1u);
  EXPECT_EQ(diff.removed[0], "aten::_assert_async(%x)");
  EXPECT_EQ(diff.changed.size(), 1u);
  EXPECT_EQ(diff.moved, 1);
}

TEST(DiffTest, LooksIntoNestedGraphs) {
  const auto text = [](const std::string& number) {
    return Parse(
        "graph @g(%q: input \"q\" f32[2, 2, 16, 8]) {\n"
        "  %out, %lse = gt::flex_attention(%q, %q, %q, [], score_mod = graph @score(%s: input "
        "\"s\" f32[]) {\n"
        "    %mul = aten::mul.Tensor(%s, " +
        number +
        ") : f32[]\n"
        "    return result \"score\" %mul\n"
        "  }, mask_mod = none, scale = 0.125) : (f32[2, 2, 16, 8], f32[2, 2, 16])\n"
        "  return\n}");
  };
  const GraphDiff diff = Diff(*text("2.0"), *text("3.0"));
  ASSERT_EQ(diff.changed.size(), 1u);
  EXPECT_EQ(diff.changed[0].after, "%out/score_mod: %mul = aten::mul.Tensor(%s, 3.0) : f32[]");
  EXPECT_TRUE(diff.added.empty());
}

}  // namespace
}  // namespace gt::diff_test
