#include <gtest/gtest.h>

#include "gt/ir/graph.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::matmul_test {
namespace {

Dim FlopsOf(const std::string& text) {
  auto graph = Parse(text);
  Verify(*graph);
  const Node& node = *graph->last();
  std::vector<const TensorType*> operands, results;
  for (int32_t i = 0; i < node.operand_count(); ++i) operands.push_back(&node.operand(i)->type());
  for (int32_t i = 0; i < node.result_count(); ++i) results.push_back(&node.result(i)->type());
  return node.op().flops({node.args(), operands, results});
}

TEST(MatmulTest, CountsTwoForEachMultiplyAdd) {
  EXPECT_EQ(FlopsOf(R"(graph @g(%a: input "a" f32[3, 5], %b: input "b" f32[5, 7]) {
  %c = aten::mm(%a, %b) : f32[3, 7]
  return
})"),
            Dim(2 * 3 * 5 * 7));
  EXPECT_EQ(FlopsOf(R"(graph @g(%a: input "a" f32[2, 3, 5], %b: input "b" f32[2, 5, 7]) {
  %c = aten::bmm(%a, %b) : f32[2, 3, 7]
  return
})"),
            Dim(2 * 2 * 3 * 5 * 7));
}

// Each row goes through one expert, however many there are; so does each column, and each slice of
// the inner dimension.
TEST(MatmulTest, GroupsShareTheWork) {
  EXPECT_EQ(
      FlopsOf(
          R"(graph @g(%x: input "x" bf16[12, 8], %w: input "w" bf16[4, 8, 16], %o: input "o" i32[4]) {
  %y = aten::_grouped_mm(%x, %w, offs = %o) : bf16[12, 16]
  return
})"),
      Dim(2 * 12 * 8 * 16));
  EXPECT_EQ(
      FlopsOf(
          R"(graph @g(%x: input "x" bf16[12, 8], %g: input "g" bf16[12, 16], %o: input "o" i32[4]) {
  %t = aten::t(%x) : bf16[8, 12]{1, 8} offset [0]
  %y = aten::_grouped_mm(%t, %g, offs = %o) : bf16[4, 8, 16]
  return
})"),
      Dim(2 * 8 * 12 * 16));
  EXPECT_EQ(FlopsOf(R"(graph @g(%x: input "x" bf16[4, 12, 8], %w: input "w" bf16[4, 8, 16]) {
  %y = aten::_grouped_mm(%x, %w) : bf16[4, 12, 16]
  return
})"),
            Dim(2 * 4 * 12 * 8 * 16));
}

// Token counts are sizes read from data: nothing about them is asked, and rows of the result are
// padded to 16 bytes.
TEST(MatmulTest, GroupsOfTokensFromData) {
  FlopsOf(R"(graph @g(%c: input "c" i64[2], %w: input "w" bf16[4, 12, 8], %o: input "o" i32[4]) {
  symbols { u0: data, hint 3; u1: data, hint 5 }
  gt::read_ints(%c) binds [u0, u1]
  %x = aten::zeros(size = [u0 + u1, 8], dtype = bf16) : bf16[u0 + u1, 8]
  %t = aten::transpose.int(%w, dim0 = 1, dim1 = 2) : bf16[4, 8, 12]{96, 1, 8} offset [0]
  %y = aten::_grouped_mm(%x, %t, offs = %o) : bf16[u0 + u1, 12]{16, 1}
  return
})");
}

}  // namespace
}  // namespace gt::matmul_test
