// Views of tensors whose sizes are read from data. (Numbers and input symbols are compared with
// libtorch in conformance/.)
#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::views_test {
namespace {

// Rows that arrived in an exchange with two others, u0 and u1 from each, and the body of a graph
// around them.
std::string WithRows(const std::string& body) {
  return "graph @g(%counts: input \"counts\" i64[2], %w: param \"w\" f32[16, 8]) {\n"
         "  symbols { u0: data, hint 3, range [0, inf]; u1: data, hint 5, range [0, inf] }\n"
         "  gt::read_ints(%counts) binds [u0, u1]\n"
         "  %x = aten::zeros(size = [u0 + u1, 8]) : f32[u0 + u1, 8]\n" +
         body + "\n  return\n}\n";
}

std::string FailureOf(const std::string& body) {
  try {
    Verify(*Parse(WithRows(body)));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Reshaping, slicing and transposing rows asks nothing about how many there are.
TEST(ViewsTest, DataSizesPassThrough) {
  EXPECT_EQ(FailureOf(R"(
  %a = aten::view(%x, size = [-1, 4]) : f32[u0 * 2 + u1 * 2, 4]
  %b = aten::view(%x, size = [u0 + u1, 2, 4]) : f32[u0 + u1, 2, 4]
  %c = aten::transpose.int(%b, dim0 = 0, dim1 = 1) : f32[2, u0 + u1, 4]{4, 8, 1} offset [0]
  %d = aten::slice.Tensor(%x, dim = 0, start = 0, end = u0) : f32[u0, 8] offset [0]
  %e = aten::slice.Tensor(%x, dim = 0, start = u0, end = 9223372036854775807) : f32[u1, 8] offset [u0 * 8]
  %f, %g = aten::split_with_sizes(%x, split_sizes = [u0, u1]) : (f32[u0, 8], f32[u1, 8]) offset [0, u0 * 8]
  %h = aten::unsqueeze(%x, dim = 1) : f32[u0 + u1, 1, 8] offset [0]
  %i = aten::expand(%h, size = [-1, 3, -1]) : f32[u0 + u1, 3, 8]{8, 0, 1} offset [0])"),
            "");
}

// A copy in row-major order clamps strides for the case that there are no rows; views see through
// the clamps.
TEST(ViewsTest, ClampedStridesDoNotHideViews) {
  EXPECT_EQ(FailureOf(R"(
  %t = aten::t_copy(%x) : f32[8, u0 + u1]{max(1, u0 + u1), 1}
  %a = aten::view(%t, size = [2, 4, u0 + u1]) : f32[2, 4, u0 + u1]
  %b = aten::transpose.int(%a, dim0 = 0, dim1 = 1) : f32[4, 2, u0 + u1]{max(1, u0 + u1), max(1, u0 + u1) * 4, 1} offset [0]
  %c = aten::view(%b, size = [4, 2, u0 + u1, 1]) : f32[4, 2, u0 + u1, 1]{u0 + u1, u0 * 4 + u1 * 4, 1, 1})"),
            "");
}

// What cannot be decided without data is refused with the question, not answered from one batch.
TEST(ViewsTest, RefusesWhatOnlyDataCouldDecide) {
  EXPECT_NE(
      FailureOf("  %a = aten::squeeze.dim(%x, dim = 0) : f32[u0 + u1, 8]").find("depends on data"),
      std::string::npos);
  EXPECT_NE(FailureOf("  %a = aten::unbind.int(%x) : f32[8]").find("depends on data"),
            std::string::npos);
  EXPECT_NE(
      FailureOf("  %a = aten::view(%x, size = [-1, 16]) : f32[u0, 16]").find("depends on data"),
      std::string::npos);
}

TEST(ViewsTest, RefusesViewsThatDoNotExist) {
  EXPECT_NE(FailureOf("  %t = aten::t(%w) : f32[8, 16]{1, 8} offset [0]\n"
                      "  %a = aten::view(%t, size = [128]) : f32[128]")
                .find("use reshape"),
            std::string::npos);
  EXPECT_NE(FailureOf("  %a = aten::view(%w, size = [7, -1]) : f32[7, 18]").find("does not fit"),
            std::string::npos);
  EXPECT_NE(
      FailureOf("  %a = aten::select.int(%w, dim = 0, index = 16) : f32[8]").find("out of range"),
      std::string::npos);
}

}  // namespace
}  // namespace gt::views_test
