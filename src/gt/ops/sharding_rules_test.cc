// Sharding rules as text. That what they say is right is proved against libtorch
// (conformance/sharding_checks.h); here is what they say about the calls that matter most, and what
// libtorch has no kernel for.
#include "gt/ops/sharding_rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gt/ir/graph.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::sharding_rules_test {
namespace {

// The rows of the graph's last node, one per line.
std::string RowsOf(const std::string& text) {
  auto graph = Parse(text);
  Verify(*graph);
  const Node& node = *graph->last();
  std::vector<const TensorType*> operands, results;
  for (int32_t i = 0; i < node.operand_count(); ++i) operands.push_back(&node.operand(i)->type());
  for (int32_t i = 0; i < node.result_count(); ++i) results.push_back(&node.result(i)->type());
  const auto hints = graph->shapes().Hints();
  ShardingContext context(node.args(), operands, results, {hints.data(), hints.size()});
  node.op().sharding(context);
  std::string rows;
  for (const ShardingRow& row : context.rows()) rows += RowText(row) + "\n";
  return rows;
}

TEST(ShardingRules, MatrixProduct) {
  EXPECT_EQ(RowsOf(R"(graph @g(%a: input "a" f32[4, 6], %b: input "b" f32[6, 8]) {
  %c = aten::mm(%a, %b) : f32[4, 8]
  return
})"),
            "S0 R -> S0\n"
            "S1 S0 -> P\n"
            "R S1 -> S1\n"
            "P R -> P\n"
            "R P -> P\n");
}

// What is added is cut with the result, and a partial sum where the product is one.
TEST(ShardingRules, ProductWithBias) {
  EXPECT_EQ(
      RowsOf(
          R"(graph @g(%s: input "s" f32[8], %a: input "a" f32[4, 6], %b: input "b" f32[6, 8]) {
  %c = aten::addmm(%s, %a, %b) : f32[4, 8]
  return
})"),
      "R S0 R -> S0\n"
      "P S1 S0 -> P\n"
      "S0 R S1 -> S1\n"
      "P P R -> P\n"
      "P R P -> P\n");
}

// Rows of tokens and experts stay whole where offs counts them; rows of the kernel are 16 bytes.
TEST(ShardingRules, GroupedProduct) {
  EXPECT_EQ(
      RowsOf(
          R"(graph @g(%x: input "x" bf16[12, 32], %w: input "w" bf16[4, 32, 16], %o: input "o" i32[4]) {
  %y = aten::_grouped_mm(%x, %w, offs = %o) : bf16[12, 16]
  return
})"),
      "S1 S1 R -> P multiple 8\n"
      "R S2 R -> S1 multiple 8\n"
      "P R R -> P\n"
      "R P R -> P\n");
  EXPECT_EQ(RowsOf(R"(graph @g(%x: input "x" bf16[4, 12, 8], %w: input "w" bf16[4, 8, 16]) {
  %y = aten::_grouped_mm(%x, %w) : bf16[4, 12, 16]
  return
})"),
            "S0 S0 -> S0\n"
            "S1 R -> S1\n"
            "S2 S1 -> P multiple 8\n"
            "R S2 -> S2 multiple 8\n"
            "P R -> P\n"
            "R P -> P\n");
}

TEST(ShardingRules, PointwiseFollowsBroadcasting) {
  EXPECT_EQ(RowsOf(R"(graph @g(%a: input "a" f32[4, 1, 6], %b: input "b" f32[5, 6]) {
  %c = aten::mul.Tensor(%a, %b) : f32[4, 5, 6]
  return
})"),
            "S0 R -> S0\n"
            "R S0 -> S1\n"
            "S2 S1 -> S2\n"
            "P R -> P\n"
            "R P -> P\n");
}

// A number would be added once per rank.
TEST(ShardingRules, AddingANumberIsNotLinear) {
  EXPECT_EQ(RowsOf(R"(graph @g(%a: input "a" f32[4]) {
  %c = aten::add.Tensor(%a, 1.0) : f32[4]
  return
})"),
            "S0 -> S0\n");
}

// Partial sums of floating-point numbers cannot be rounded one by one, and booleans have no sum.
TEST(ShardingRules, CastsPassPartialSumsOfNumbers) {
  EXPECT_EQ(RowsOf(R"(graph @g(%a: input "a" f32[4]) {
  %c = aten::_to_copy(%a, dtype = bf16) : bf16[4]
  return
})"),
            "S0 -> S0\nP -> P\n");
  for (const char* dtype : {"i64", "bool"}) {
    EXPECT_EQ(RowsOf(fmt::format(R"(graph @g(%a: input "a" f32[4]) {{
  %c = aten::_to_copy(%a, dtype = {0}) : {0}[4]
  return
}})",
                                 dtype)),
              "S0 -> S0\n");
  }
}

// Joined and split dimensions: the first of a group is cut, if the ranks divide it on both sides.
TEST(ShardingRules, ViewsAreCutByGroups) {
  EXPECT_EQ(RowsOf(R"(graph @g(%a: input "a" f32[2, 3, 4, 5]) {
  %c = aten::view(%a, size = [6, 1, 2, 10]) : f32[6, 1, 2, 10]
  return
})"),
            "P -> P\n"
            "S0 -> S0 even\n"
            "S2 -> S2 even\n");
  EXPECT_EQ(RowsOf(R"(graph @g(%a: input "a" f32[s0, 16, 128]) {
  symbols { s0: input, hint 4, range [2, 64] }
  %c = aten::view(%a, size = [16 * s0, 128]) : f32[16 * s0, 128]
  return
})"),
            "P -> P\n"
            "S0 -> S0 even\n"
            "S2 -> S1\n");
}

TEST(ShardingRules, EmbeddingByRowsColumnsAndTokens) {
  EXPECT_EQ(RowsOf(R"(graph @g(%w: input "w" f32[100, 8], %i: input "i" i64[2, 16]) {
  %c = aten::embedding(%w, %i) : f32[2, 16, 8]
  return
})"),
            "S1 R -> S2\n"
            "R S0 -> S0\n"
            "R S1 -> S1\n"
            "S0 R -> P masked\n"
            "P R -> P\n");
}

TEST(ShardingRules, SoftmaxAlongItsDimensionCombinesStatistics) {
  EXPECT_EQ(RowsOf(R"(graph @g(%x: input "x" f32[16, 100]) {
  %c = aten::_log_softmax(%x, dim = -1, half_to_float = false) : f32[16, 100]
  return
})"),
            "S0 -> S0\n"
            "S1 -> S1 statistics 2\n");
}

TEST(ShardingRules, LossOverTokensAndClasses) {
  EXPECT_EQ(RowsOf(R"(graph @g(%x: input "x" f32[16, 100], %t: input "t" i64[16]) {
  %c, %w = aten::nll_loss_forward(%x, %t, none, reduction = 2, ignore_index = -100) : (f32[], f32[])
  return
})"),
            "S0 S0 -> P P\n"
            "S1 R -> P P masked\n"
            "P R -> P R\n");
}

TEST(ShardingRules, GroupedQueriesAreCutWithTheirKeys) {
  EXPECT_EQ(
      RowsOf(
          R"(graph @g(%q: input "q" f32[2, 8, 16, 4], %k: input "k" f32[2, 2, 16, 4], %v: input "v" f32[2, 2, 16, 4]) {
  %out, %lse = aten::_scaled_dot_product_flash_attention_for_cpu(%q, %k, %v) : (f32[2, 8, 16, 4], f32[2, 8, 16]{128, 1, 8})
  return
})"),
      "S0 S0 S0 -> S0 S0\n"
      "S1 S1 S1 -> S1 S1 even\n");
}

std::string Flex(const std::string& mask) {
  return R"(graph @g(%q: input "q" bf16[2, 4, 16, 32], %doc: input "doc" i32[2, 16]) {
  %out, %lse = gt::flex_attention(%q, %q, %q, [%doc], score_mod = graph @score(%s: input "s" f32[], %b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[], %doc: input "doc" i32[2, 16]) {
    return result "score" %s
  }, mask_mod = graph @mask(%b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[], %doc: input "doc" i32[2, 16]) {
)" + mask +
         R"(
  }, scale = 0.5) : (bf16[2, 4, 16, 32]{2048, 32, 128, 1}, f32[2, 4, 16])
  return result "out" %out
}
)";
}

// A mask that looks up the documents of its row is cut with them.
TEST(ShardingRules, FlexAttentionCutsWhatItLooksUp) {
  EXPECT_EQ(RowsOf(Flex(R"(
    %mine = aten::index.Tensor(%doc, [%b, %i]) : i32[]
    %other = aten::index.Tensor(%doc, [%b, %j]) : i32[]
    %same = aten::eq.Tensor(%mine, %other) : bool[]
    return result "keep" %same)")),
            "S0 S0 S0 S0 -> S0 S0\n"
            "S1 S1 S1 R -> S1 S1\n");
}

// One that computes with the number of the row or head needs that of the whole.
TEST(ShardingRules, FlexAttentionKeepsNumbersThatAreUsed) {
  EXPECT_EQ(RowsOf(Flex(R"(
    %same = aten::ge.Tensor(%i, %b) : bool[]
    return result "keep" %same)")),
            "S1 S1 S1 R -> S1 S1\n");
  EXPECT_EQ(RowsOf(Flex(R"(
    %mine = aten::index.Tensor(%doc, [%b, %i]) : i32[]
    %first = aten::index.Tensor(%doc, [%h, %i]) : i32[]
    %same = aten::eq.Tensor(%mine, %first) : bool[]
    return result "keep" %same)")),
            "");
}

TEST(ShardingRules, RandomNumbersAreDrawnByPosition) {
  EXPECT_EQ(RowsOf(R"(graph @g(%x: input "x" f32[4, 6]) {
  %y, %m = aten::native_dropout(%x, p = 0.1, train = true) : (f32[4, 6], bool[4, 6])
  return
})"),
            "S0 -> S0 S0 random\n"
            "S1 -> S1 S1 random\n");
}

TEST(ShardingRules, ShardsAreEquallyLongExceptTheLast) {
  EXPECT_EQ(ShardOf(7, 3, 0).length, 3);
  EXPECT_EQ(ShardOf(7, 3, 2).begin, 6);
  EXPECT_EQ(ShardOf(7, 3, 2).length, 1);
  EXPECT_EQ(ShardOf(4, 3, 2).length, 0);
}

// Sizes among the arguments become those of the rank's result.
TEST(ShardingRules, LocalArguments) {
  const Operator& view = *FindOperator(std::string_view("aten::view"));
  const Argument args[] = {OperandRef{0}, Shape{Dim(8), Dim(-1)}};
  const Shape results[] = {{Dim(2), Dim(5)}};
  EXPECT_EQ(std::get<Shape>(LocalArguments(view, args, results)[1]), results[0]);
}

}  // namespace
}  // namespace gt::sharding_rules_test
