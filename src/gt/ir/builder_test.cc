#include "gt/ir/builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::builder_test {
namespace {

constexpr std::string_view kText =
    R"(graph @step(%x: input "x" f32[2, 8], %y: input "y" f32[2, 8]) {
  %neg = aten::neg(%x) : f32[2, 8] {module = "layers.0", phase = backward}
  return result "r" %neg
}
)";

// Operands are numbered as the schema lists them, whatever the order in which they are given.
TEST(NodeBuilder, NumbersOperandsBySchema) {
  const std::unique_ptr<Graph> graph = Parse(kText);
  Value* x = graph->FindValue("x");
  Value* y = graph->FindValue("y");
  Node* add = NodeBuilder(*graph, "aten::add.Tensor").Set("other", y).Set("self", x).Insert();
  EXPECT_EQ(add->operand(0), x);
  EXPECT_EQ(add->operand(1), y);
  EXPECT_EQ(add->arg(2), Argument(Dim(1)));  // the default of alpha
  Node* cat =
      NodeBuilder(*graph, "aten::cat").Set("tensors", std::vector<Value*>{y, x}).Insert(add);
  EXPECT_EQ(cat->result()->type().sizes, (Shape{4, 8}));
  EXPECT_EQ(cat->next(), add);
  Verify(*graph);
}

TEST(NodeBuilder, NamesAndMetadataAreTheCallers) {
  const std::unique_ptr<Graph> graph = Parse(kText);
  Node* neg = graph->first();
  Value* again = NodeBuilder(*graph, neg->op())
                     .Set("self", neg->result())
                     .With(neg->meta())
                     .Named("twice")
                     .Result();
  EXPECT_EQ(again->name(), "twice");
  EXPECT_EQ(again->producer()->meta(), neg->meta());
}

TEST(NodeBuilder, UnknownOperatorsAndArgumentsAreErrors) {
  const std::unique_ptr<Graph> graph = Parse(kText);
  EXPECT_THROW(NodeBuilder(*graph, "aten::no_such"), Error);
  EXPECT_THROW(NodeBuilder(*graph, "aten::neg").Set("other", graph->FindValue("x")), Error);
}

// A node and its copy differ in their names alone.
TEST(SpecOf, MakesTheSameNodeAgain) {
  const std::unique_ptr<Graph> graph = Parse(R"(graph @step(%x: input "x" f32[2, 8]) {
  %a = aten::slice.Tensor(%x, dim = 1, start = 2, end = 6) : f32[2, 4]{8, 1} offset [2] {module = "m"}
  return result "r" %a
}
)");
  Node* a = graph->first();
  Node* copy = graph->InsertTyped(SpecOf(*a), TypedOf(*a));
  EXPECT_EQ(copy->operand(0), a->operand(0));
  EXPECT_TRUE(std::ranges::equal(copy->args(), a->args()));
  EXPECT_TRUE(std::ranges::equal(copy->view_offsets(), a->view_offsets()));
  EXPECT_EQ(copy->result()->type(), a->result()->type());
  EXPECT_EQ(copy->meta(), a->meta());
  EXPECT_NE(copy->result()->name(), a->result()->name());
  Verify(*graph);
}

}  // namespace
}  // namespace gt::builder_test
