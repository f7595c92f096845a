// Masks are known by what they mean, however they are written.
#include "gt/kernels/attention_mask.h"

#include <gtest/gtest.h>

#include "gt/ir/text.h"

namespace gt::attention_mask_test {
namespace {

MaskMeaning Of(const std::string& nodes, const std::string& result) {
  auto graph = Parse(
      R"(graph @mask(%b: input "b" i32[], %h: input "h" i32[], %q: input "q" i32[], %k: input "k" i32[], %s: input "s" i32[2, 8], %d: input "d" i32[2, 8]) {
)" + nodes +
      "  return result \"r\" %" + result + "\n}");
  return MeaningOf(graph.get());
}

constexpr const char* kDocuments = R"(  %mine = aten::index.Tensor(%d, [%b, %q]) : i32[]
  %other = aten::index.Tensor(%d, [%b, %k]) : i32[]
)";

TEST(AttentionMask, NoFunctionAllowsAll) { EXPECT_EQ(MeaningOf(nullptr).kind, MaskKind::kAll); }

TEST(AttentionMask, CausalInEveryForm) {
  EXPECT_EQ(Of("  %m = aten::ge.Tensor(%q, %k) : bool[]\n", "m").kind, MaskKind::kCausal);
  EXPECT_EQ(Of("  %m = aten::le.Tensor(%k, %q) : bool[]\n", "m").kind, MaskKind::kCausal);
  EXPECT_EQ(
      Of("  %l = aten::lt.Tensor(%q, %k) : bool[]\n  %m = aten::logical_not(%l) : bool[]\n", "m")
          .kind,
      MaskKind::kCausal);
  EXPECT_EQ(Of("  %g = aten::gt.Tensor(%q, %k) : bool[]\n  %e = aten::eq.Tensor(%k, %q) : bool[]\n"
               "  %m = aten::logical_or(%g, %e) : bool[]\n",
               "m")
                .kind,
            MaskKind::kCausal);
}

TEST(AttentionMask, Documents) {
  const std::string both = std::string(kDocuments) + R"(  %c = aten::ge.Tensor(%q, %k) : bool[]
  %e = aten::eq.Tensor(%other, %mine) : bool[]
  %m = aten::logical_and(%e, %c) : bool[]
)";
  EXPECT_EQ(Of(both, "m").kind, MaskKind::kCausalDocument);
  EXPECT_EQ(Of(both, "m").documents, 1);
  EXPECT_EQ(Of(both, "e").kind, MaskKind::kDocument);
  EXPECT_EQ(Of(both, "c").kind, MaskKind::kCausal);
}

// Strictly before, the other way round, other captures, windows and heads are nothing the kernels know.
TEST(AttentionMask, OthersAreAsked) {
  const auto other = [](const std::string& nodes) {
    return Of(nodes, "m").kind == MaskKind::kOther;
  };
  EXPECT_TRUE(other("  %m = aten::gt.Tensor(%q, %k) : bool[]\n"));
  EXPECT_TRUE(other("  %m = aten::le.Tensor(%q, %k) : bool[]\n"));
  EXPECT_TRUE(other("  %m = aten::ge.Tensor(%q, %h) : bool[]\n"));
  EXPECT_TRUE(other("  %m = aten::ge.Scalar(%q, 3) : bool[]\n"));
  EXPECT_TRUE(
      other("  %x = aten::sub.Tensor(%q, %k) : i32[]\n  %m = aten::le.Scalar(%x, 4) : bool[]\n"));
  // The query's document compared with another tensor's, and looked up at the wrong places.
  EXPECT_TRUE(other(R"(  %x = aten::index.Tensor(%d, [%b, %q]) : i32[]
  %y = aten::index.Tensor(%s, [%b, %k]) : i32[]
  %m = aten::eq.Tensor(%x, %y) : bool[]
)"));
  EXPECT_TRUE(other(R"(  %x = aten::index.Tensor(%d, [%h, %q]) : i32[]
  %y = aten::index.Tensor(%d, [%h, %k]) : i32[]
  %m = aten::eq.Tensor(%x, %y) : bool[]
)"));
  // Two kinds of documents at once.
  EXPECT_TRUE(other(std::string(kDocuments) + R"(  %x = aten::index.Tensor(%s, [%b, %q]) : i32[]
  %y = aten::index.Tensor(%s, [%b, %k]) : i32[]
  %e = aten::eq.Tensor(%mine, %other) : bool[]
  %f = aten::eq.Tensor(%x, %y) : bool[]
  %m = aten::logical_and(%e, %f) : bool[]
)"));
}

}  // namespace
}  // namespace gt::attention_mask_test
