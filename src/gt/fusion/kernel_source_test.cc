// The text of kernels: what it depends on and what it does not.
#include "gt/fusion/kernel_source.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gt/fusion/index.h"
#include "gt/fusion/nvrtc.h"
#include "gt/ir/text.h"

namespace gt::kernel_source_test {
namespace {

using fusion::KernelSource;
using fusion::MakeKernelSource;

KernelSource SourceOf(const std::string& text, const fusion::KernelSourceOptions& options = {}) {
  auto graph = Parse(text);
  auto source = MakeKernelSource(*graph, options);
  EXPECT_TRUE(source.has_value()) << text;
  return source.value_or(KernelSource{});
}

std::string SwiGlu(int64_t rows, int64_t width) {
  return fmt::format(R"(graph @f(%a: input "a" bf16[{0}, {1}], %b: input "b" bf16[{0}, {1}]) {{
  %s = aten::silu(%a) : bf16[{0}, {1}]
  %m = aten::mul.Tensor(%s, %b) : bf16[{0}, {1}]
  return result "m" %m
}})",
                     rows, width);
}

// A rotation of pairs, with rows that are cut out of something wider.
std::string Rope(int64_t batch, int64_t length) {
  return fmt::format(
      R"(graph @f(%x: input "x" bf16[{0}, {1}, 8, 64]{{{2}, 768, 96, 1}}, %f: input "f" c64[{1}, 1, 32]) {{
  %c = aten::_to_copy(%x, dtype = f32) : f32[{0}, {1}, 8, 64]
  %v = aten::view(%c, size = [{0}, {1}, 8, 32, 2]) : f32[{0}, {1}, 8, 32, 2]
  %z = aten::view_as_complex(%v) : c64[{0}, {1}, 8, 32]
  %m = aten::mul.Tensor(%z, %f) : c64[{0}, {1}, 8, 32]
  %r = aten::view_as_real(%m) : f32[{0}, {1}, 8, 32, 2]
  %w = aten::view(%r, size = [{0}, {1}, 8, 64]) : f32[{0}, {1}, 8, 64]
  %y = aten::_to_copy(%w, dtype = bf16) : bf16[{0}, {1}, 8, 64]
  return result "y" %y
}})",
      batch, length, length * 768);
}

TEST(KernelSource, EqualWorkHasEqualTextWhateverTheSizes) {
  EXPECT_EQ(SourceOf(SwiGlu(4096, 14336)).text, SourceOf(SwiGlu(33, 1024)).text);
  const KernelSource small = SourceOf(Rope(2, 128)), large = SourceOf(Rope(4, 4096));
  EXPECT_EQ(small.text, large.text);
  EXPECT_NE(small.sizes, large.sizes);
  EXPECT_EQ(small.threads.Evaluate({}), 2 * 128 * 8 * 64 / 8);
}

TEST(KernelSource, RowsThatNoVectorFillsTakeOneElementAThread) {
  EXPECT_EQ(SourceOf(SwiGlu(4, 64)).lanes, 8);
  EXPECT_EQ(SourceOf(SwiGlu(4, 12)).lanes, 4);
  EXPECT_EQ(SourceOf(SwiGlu(4, 7)).lanes, 1);
  EXPECT_EQ(SourceOf(SwiGlu(4, 64), {.one_lane = true}).lanes, 1);
}

TEST(KernelSource, ContiguousTensorsNeedNoDivision) {
  const std::string text = SourceOf(SwiGlu(4096, 14336)).text;
  EXPECT_EQ(text.find("thread %"), std::string::npos) << text;
  EXPECT_NE(text.find("Load<8>(in0 + i1 * 8)"), std::string::npos) << text;
}

TEST(KernelSource, VectorsAreAligned) {
  const KernelSource source = SourceOf(Rope(2, 128));
  ASSERT_EQ(source.pointers.size(), 3u);
  for (const auto& pointer : source.pointers) EXPECT_EQ(pointer.bytes, 16);
  EXPECT_EQ(source.forms, 4);
  EXPECT_EQ(SourceOf(SwiGlu(4, 64)).forms, 1);
}

// Sizes that are symbols are arguments like all others.
TEST(KernelSource, SymbolsAreArguments) {
  const KernelSource source = SourceOf(R"(graph @f(%x: input "x" f32[s0, s1, 4]) {
  symbols {
    s0: input, hint 4, range [1, inf]
    s1: input, hint 3, range [1, inf]
  }
  %t = aten::transpose.int(%x, dim0 = 0, dim1 = 1) : f32[s1, s0, 4]{4, 4 * s1, 1}
  %c = aten::clone(%t, memory_format = contiguous) : f32[s1, s0, 4]
  %y = aten::exp(%c) : f32[s1, s0, 4]
  return result "y" %y
})");
  EXPECT_EQ(source.threads.Evaluate(std::vector<int64_t>{5, 7}), 35);
  EXPECT_EQ(source.lanes, 4);
  bool symbolic = false;
  for (const Dim& size : source.sizes) symbolic |= !size.is_const();
  EXPECT_TRUE(symbolic);
}

TEST(KernelSource, OperatorsWithoutCodeAreRefused) {
  auto graph = Parse(R"(graph @f(%x: input "x" f64[4]) {
  %y = aten::exp(%x) : f64[4]
  return result "y" %y
})");
  EXPECT_FALSE(MakeKernelSource(*graph).has_value());
}

constexpr const char* kHalf = R"(graph @f(%x: input "x" f16[8, 64], %y: input "y" f16[8, 64]) {
  %m = aten::maximum(%x, %y) : f16[8, 64]
  %c = aten::cat([%m, %y], dim = 1) : f16[8, 128]
  return result "c" %c
})";

constexpr const char* kLossGradient =
    R"(graph @f(%g: input "g" f32[], %y: input "y" f32[8, 64], %t: input "t" i64[8], %w: input "w" f32[]) {
  %n = aten::nll_loss_backward(%g, %y, %t, none, reduction = 2, ignore_index = -100, total_weight = %w) : f32[8, 64]
  %s = aten::_log_softmax_backward_data(%n, %y, dim = 1, input_dtype = f32) : f32[8, 64]
  %b = aten::_to_copy(%s, dtype = bf16) : bf16[8, 64]
  return result "b" %b
})";

TEST(KernelSource, LossGradientsAreOneLoop) {
  const std::string text = SourceOf(kLossGradient).text;
  EXPECT_NE(text.find("(long long)(i1 * 8 + k) == "), std::string::npos) << text;
  EXPECT_NE(text.find("!= -100LL ? -"), std::string::npos) << text;
}

TEST(KernelSource, EveryTextOfTheseTestsCompiles) {
  const fusion::Nvrtc* nvrtc = fusion::Nvrtc::Get();
  if (nvrtc == nullptr) GTEST_SKIP() << fusion::Nvrtc::WhyMissing();
  for (const KernelSource& source :
       {SourceOf(SwiGlu(4, 64)), SourceOf(SwiGlu(4, 7)), SourceOf(Rope(2, 128), {.form = 3}),
        SourceOf(kLossGradient), SourceOf(kHalf),
        SourceOf(Rope(2, 128), {.one_lane = true, .wide = true})}) {
    const auto result = nvrtc->Compile(source.text, source.name, 90);
    EXPECT_FALSE(result.cubin.empty()) << result.log << source.text;
  }
  const auto broken = nvrtc->Compile("not C++", "broken", 90);
  EXPECT_TRUE(broken.cubin.empty());
  EXPECT_NE(broken.log.find("error"), std::string::npos);
}

TEST(Index, DividesWhatIsKnownToBeDivisible) {
  using fusion::Index;
  const std::vector<fusion::Variable> variables = {{"i0", Dim(6)}, {"i1", Dim(4)}};
  // 8 * i1 + k, of eight lanes: pairs are 4 * i1 + k / 2.
  const Index index = Index::Of(1, Dim(8), 8).WithLanes();
  const auto pairs = index.DividedBy(Dim(2), variables);
  ASSERT_TRUE(pairs);
  EXPECT_EQ(pairs->quotient.terms().at(1), Dim(4));
  EXPECT_EQ(*fusion::LaneText(pairs->quotient.lanes()), "(k / 2)");
  EXPECT_EQ(*fusion::LaneText(pairs->remainder.lanes()), "(k % 2)");
  // i0 * 32 + 8 * i1 + k: rows of 32.
  const auto rows = (Index::Of(0, Dim(32), 8) + index).DividedBy(Dim(32), variables);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->quotient, Index::Of(0, Dim(1), 8));
  EXPECT_EQ(rows->remainder, index);
  EXPECT_FALSE((Index::Of(0, Dim(32), 8) + index).DividedBy(Dim(30), variables));
}

}  // namespace
}  // namespace gt::kernel_source_test
