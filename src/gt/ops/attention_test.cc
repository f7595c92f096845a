// FlexAttention, which libtorch's dispatcher does not have. (The other kernels are in
// conformance/attention_test.cc.)
#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::attention_test {
namespace {

// Causal attention within documents: the mask compares positions, and looks up which document each
// belongs to.
constexpr const char* kScore =
    R"(graph @score(%s: input "s" f32[], %b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[], %doc: input "doc" i32[16]) {
    %scaled = aten::mul.Tensor(%s, 2.0) : f32[]
    return result "score" %scaled
  })";
constexpr const char* kMask =
    R"(graph @mask(%b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[], %doc: input "doc" i32[16]) {
    %causal = aten::ge.Tensor(%i, %j) : bool[]
    %mine = aten::index.Tensor(%doc, [%i]) : i32[]
    %other = aten::index.Tensor(%doc, [%j]) : i32[]
    %same = aten::eq.Tensor(%mine, %other) : bool[]
    %both = aten::logical_and(%causal, %same) : bool[]
    return result "keep" %both
  })";
constexpr const char* kScoreBackward =
    R"(graph @back(%g: input "g" f32[], %s: input "s" f32[], %b: input "b" i32[], %h: input "h" i32[], %i: input "i" i32[], %j: input "j" i32[], %doc: input "doc" i32[16]) {
    %scaled = aten::mul.Tensor(%g, 2.0) : f32[]
    return result "grad" %scaled
  })";

std::string Flex(const std::string& score, const std::string& mask,
                 const std::string& heads = "4") {
  return R"(graph @g(%q: input "q" bf16[s0, 4, 16, 32], %k: input "k" bf16[s0, )" + heads +
         R"(, 16, 32], %v: input "v" bf16[s0, )" + heads + R"(, 16, 8], %doc: input "doc" i32[16]) {
  symbols { s0: input, hint 2, range [2, 64] }
  %out, %lse = gt::flex_attention(%q, %k, %v, [%doc], score_mod = )" +
         score + ", mask_mod = " + mask +
         ", scale = 0.5, enable_gqa = " + (heads == "4" ? "false" : "true") +
         R"() : (bf16[s0, 4, 16, 8]{512, 8, 32, 1}, f32[s0, 4, 16])
  return result "out" %out
}
)";
}

std::string FailureOf(const std::string& text) {
  try {
    Verify(*Parse(text));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FlexAttentionTest, TakesScoreAndMaskFunctions) {
  EXPECT_EQ(FailureOf(Flex(kScore, kMask)), "");
  EXPECT_EQ(FailureOf(Flex(kScore, "none")), "");
}

TEST(FlexAttentionTest, SharesKeyHeadsAmongQueryHeads) {
  EXPECT_EQ(FailureOf(Flex(kScore, kMask, "2")), "");
  EXPECT_NE(FailureOf(Flex(kScore, kMask, "3")).find("each key head"), std::string::npos);
}

// Functions are called with positions and every captured tensor; one that takes something else is
// named.
TEST(FlexAttentionTest, ChecksTheFunctions) {
  EXPECT_NE(FailureOf(Flex(kMask, kMask)).find("score_mod must take 5 scalars and the 1 captured"),
            std::string::npos);
  EXPECT_NE(FailureOf(Flex(kScore, kScore)).find("mask_mod must take 4 scalars"),
            std::string::npos);
  std::string other = kScore;
  other.replace(other.find("i32[16]"), 7, "i32[17]");
  EXPECT_NE(FailureOf(Flex(other, "none")).find("captured tensor 0"), std::string::npos);
}

TEST(FlexAttentionTest, BackwardGivesGradientsOfQueryKeyAndValue) {
  EXPECT_EQ(
      FailureOf(
          R"(graph @g(%g: input "g" bf16[2, 4, 16, 8], %q: input "q" bf16[2, 4, 16, 32], %v: input "v" bf16[2, 4, 16, 8], %lse: input "lse" f32[2, 4, 16], %doc: input "doc" i32[16]) {
  %dq, %dk, %dv = gt::flex_attention_backward(%g, %q, %q, %v, %g, %lse, [%doc], score_mod = )" +
          std::string(kScore) + ", score_mod_backward = " + kScoreBackward +
          ", mask_mod = " + kMask +
          R"(, scale = 0.5) : (bf16[2, 4, 16, 32]{2048, 32, 128, 1}, bf16[2, 4, 16, 32]{2048, 32, 128, 1}, bf16[2, 4, 16, 8]{512, 8, 32, 1})
  return
}
)"),
      "");
}

}  // namespace
}  // namespace gt::attention_test
