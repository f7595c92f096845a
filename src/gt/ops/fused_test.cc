// gt::fused as a node: its rule, its text form, its cost.
#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/ir/builder.h"
#include "gt/ir/graph.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::fused_test {
namespace {

constexpr const char* kGraph = R"(graph @g(%x: input "x" bf16[s0, 8], %w: param "w" bf16[8]) {
  symbols { s0: input, hint 4, range [1, inf] }
  %y, %z = gt::fused([%x, %w], body = graph @fused(%a: input "a" bf16[s0, 8], %b: input "b" bf16[8]) {
    %s = aten::silu(%a) : bf16[s0, 8]
    %m = aten::mul.Tensor(%s, %b) : bf16[s0, 8]
    return result "s" %s, result "m" %m
  }) : (bf16[s0, 8], bf16[s0, 8]) {module = "layers.0"}
  return result "y" %y, result "z" %z
})";

TEST(Fused, TypesAreThoseOfItsBody) {
  auto graph = Parse(kGraph);
  Verify(*graph);
  const Node& node = *graph->first();
  ASSERT_NE(FusedBody(node), nullptr);
  EXPECT_EQ(FusedBody(node)->node_count(), 2);
  EXPECT_EQ(InferTypes(node).size(), 2u);
  EXPECT_EQ(FusedBody(*FusedBody(node)->first()), nullptr);
}

TEST(Fused, PrintingAndParsingGivesTheSameGraph) {
  auto graph = Parse(kGraph);
  auto again = Parse(Print(*graph));
  EXPECT_EQ(again->Hash(), graph->Hash());
  EXPECT_EQ(Print(*again), Print(*graph));
  EXPECT_EQ(graph->Clone()->Hash(), graph->Hash());
}

TEST(Fused, CostsWhatItsOperatorsCost) {
  auto graph = Parse(kGraph);
  const Node& node = *graph->first();
  Dim flops(0);
  for (const Node* inner : FusedBody(node)->nodes()) flops += FlopsOf(*inner);
  EXPECT_EQ(FlopsOf(node), flops);
  EXPECT_EQ(flops.Evaluate(graph->shapes().Hints()), 4 * 8 * (5 + 1));
}

void ExpectRejected(const std::string& text, const char* what) {
  try {
    Verify(*Parse(text));
    ADD_FAILURE() << "not rejected: " << what;
  } catch (const Error& error) {
    EXPECT_NE(error.message().find(what), std::string::npos) << error.message();
  }
}

TEST(Fused, OperandsMustFitTheBody) {
  ExpectRejected(R"(graph @g(%x: input "x" f32[4]) {
  %y = gt::fused([%x, %x], body = graph @fused(%a: input "a" f32[4]) {
    %n = aten::neg(%a) : f32[4]
    return result "n" %n
  }) : f32[4]
  return result "y" %y
})",
                 "the body has 1 inputs, 2 tensors are given");
  ExpectRejected(R"(graph @g(%x: input "x" f32[4]) {
  %y = gt::fused([%x], body = graph @fused(%a: input "a" f32[8]) {
    %n = aten::neg(%a) : f32[8]
    return result "n" %n
  }) : f32[8]
  return result "y" %y
})",
                 "input 0 of the body has another type");
}

// Two names for one storage would not be known to passes and the memory engine.
TEST(Fused, ResultsAreFreshMemory) {
  ExpectRejected(R"(graph @g(%x: input "x" f32[4, 2]) {
  %y = gt::fused([%x], body = graph @fused(%a: input "a" f32[4, 2]) {
    %t = aten::t(%a) : f32[2, 4]{1, 2}
    return result "t" %t
  }) : f32[2, 4]{1, 2}
  return result "y" %y
})",
                 "shares memory");
}

TEST(Fused, TheVerifierLooksInside) {
  ExpectRejected(R"(graph @g(%x: input "x" f32[4]) {
  %y = gt::fused([%x], body = graph @fused(%a: input "a" f32[4]) {
    %n = aten::neg(%a) : f32[5]
    return result "n" %n
  }) : f32[5]
  return result "y" %y
})",
                 "neg");
}

}  // namespace
}  // namespace gt::fused_test
