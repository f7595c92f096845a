// Where the batch is in dimensions that it was flattened into: which histories show that a range of
// the dimension is a range of samples, and which do not.
#include "gt/passes/chunk/chunk_layout.h"

#include <gtest/gtest.h>

#include "gt/passes/chunk/chunk_test_util.h"

namespace gt::chunk_layout_test {
namespace {

using testing::StepText;

// "outermost", "after 4 (f)", "samples (f)", "constant", "numbered", "unknown (f)", "absent", with
// the node that made it so.
std::string LayoutOf(const StepText& step, std::string_view value) {
  auto graph = Parse(step.Text());
  Verify(*graph);
  graph->NumberNodes();
  ChunkLayouts layouts(*graph, 0);
  const ChunkLayout& layout = layouts.Of(*graph->FindValue(value));
  const Node* node = layouts.origin(layout);
  const std::string origin = node == nullptr ? "" : fmt::format(" ({})", node->result()->name());
  switch (layout.kind) {
    case ChunkLayout::Kind::kAbsent:
      return "absent";
    case ChunkLayout::Kind::kPlaced:
      if (layout.outer.Is(1)) return "outermost";
      return "after " + graph->shapes().Print(layout.outer) + origin;
    case ChunkLayout::Kind::kSamples:
      return "samples" + origin;
    case ChunkLayout::Kind::kConstant:
      return "constant";
    case ChunkLayout::Kind::kNumbered:
      return "numbered";
    case ChunkLayout::Kind::kUnknown:
      break;
  }
  return "unknown" + origin;
}

std::string LayoutOf(std::string_view nodes, std::string_view value, std::string_view inputs = {}) {
  const std::string outputs = fmt::format("result \"{0}\" %{0}", value);
  return LayoutOf(StepText{nodes, outputs, inputs}, value);
}

constexpr std::string_view kBatchFirst = R"(, %q: input "q" f32[s0, 6, 8])";
constexpr std::string_view kBatchSecond = R"(, %q: input "q" f32[6, s0, 8])";

TEST(ChunkLayout, InputsHaveTheSymbolAlone) {
  EXPECT_EQ(LayoutOf("%y = aten::relu(%x) : f32[s0, 8] <a>", "x"), "outermost");
  EXPECT_EQ(LayoutOf("%y = aten::relu(%x) : f32[s0, 8] <a>", "w"), "absent");
  EXPECT_EQ(LayoutOf("%y = aten::relu(%q) : f32[6, s0, 8] <a>", "q", kBatchSecond), "outermost");
  // A sequence sharded over ranks: each rank has one shard.
  constexpr std::string_view kParts = R"(, %q: input "q" f32[4, s0 * 2])";
  EXPECT_EQ(LayoutOf("%y = aten::relu(%q) : f32[4, s0 * 2] <a>", "y", kParts), "after 2");
  EXPECT_EQ(LayoutOf("%y = aten::view(%q, size = [4, 2, s0]) : f32[4, 2, s0] <a>", "y", kParts),
            "outermost");
  EXPECT_EQ(
      LayoutOf("%y = aten::relu(%q) : f32[s0, s0] <a>", "q", R"(, %q: input "q" f32[s0, s0])"),
      "unknown");
}

TEST(ChunkLayout, FlatteningKeepsTheOrderOfDimensions) {
  EXPECT_EQ(
      LayoutOf("%f = aten::view(%q, size = [s0 * 6, 8]) : f32[s0 * 6, 8] <a>", "f", kBatchFirst),
      "outermost");
  EXPECT_EQ(LayoutOf("%f = aten::view(%q, size = [s0 * 48]) : f32[s0 * 48] <a>", "f", kBatchFirst),
            "outermost");
  EXPECT_EQ(
      LayoutOf("%f = aten::view(%q, size = [s0 * 6, 8]) : f32[s0 * 6, 8] <a>", "f", kBatchSecond),
      "after 6 (f)");
  // Of the six, two are before the new dimension and three are in it.
  EXPECT_EQ(LayoutOf("%f = aten::view(%q, size = [2, s0 * 12, 2]) : f32[2, s0 * 12, 2] <a>", "f",
                     kBatchSecond),
            "after 3 (f)");
  // A copy is in the same order.
  EXPECT_EQ(LayoutOf("%f = aten::view_copy(%q, size = [s0 * 6, 8]) : f32[s0 * 6, 8] <a>", "f",
                     kBatchSecond),
            "after 6 (f)");
}

TEST(ChunkLayout, FlatteningAfterAPermutation) {
  EXPECT_EQ(LayoutOf(R"(
      %p = aten::permute(%q, dims = [1, 0, 2]) : f32[s0, 6, 8]{8, s0 * 8, 1} <a>
      %c = aten::clone(%p, memory_format = contiguous) : f32[s0, 6, 8] <a>
      %f = aten::view(%c, size = [s0 * 6, 8]) : f32[s0 * 6, 8] <a>)",
                     "f", kBatchSecond),
            "outermost");
  EXPECT_EQ(LayoutOf(R"(
      %p = aten::transpose.int(%q, dim0 = 0, dim1 = 1) : f32[6, s0, 8]{8, 48, 1} <a>
      %f = aten::reshape(%p, shape = [s0 * 6, 8]) : f32[s0 * 6, 8] <a>)",
                     "f", kBatchFirst),
            "after 6 (f)");
}

TEST(ChunkLayout, TakingApartWhatWasFlattened) {
  constexpr std::string_view kRoundTrip = R"(
      %f = aten::view(%q, size = [s0 * 6, 8]) : f32[s0 * 6, 8] <a>
      %h = aten::mm(%f, %w) : f32[s0 * 6, 8] <a>
      %g = aten::view(%h, size = [6, s0, 8]) : f32[6, s0, 8] <a>)";
  EXPECT_EQ(LayoutOf(kRoundTrip, "h", kBatchSecond), "after 6 (f)");
  EXPECT_EQ(LayoutOf(kRoundTrip, "g", kBatchSecond), "outermost");
  // The same sizes, but row i of six is not what was row i: the dimension of s0 counts no samples.
  EXPECT_EQ(LayoutOf(kRoundTrip, "g", kBatchFirst), "unknown (g)");
  EXPECT_EQ(LayoutOf(R"(
      %f = aten::view(%q, size = [s0, 6, 8]) : f32[s0, 6, 8] <a>
      %r = aten::relu(%f) : f32[s0, 6, 8] <a>)",
                     "r", kBatchSecond),
            "unknown (f)");
}

TEST(ChunkLayout, OperandsMustAgree) {
  constexpr std::string_view kBoth =
      R"(, %a: input "a" f32[s0, 6], %b: input "b" f32[6, s0], %c: input "c" f32[s0, 6])";
  constexpr std::string_view kNodes = R"(
      %fa = aten::view(%a, size = [s0 * 6]) : f32[s0 * 6] <a>
      %fb = aten::view(%b, size = [s0 * 6]) : f32[s0 * 6] <a>
      %fc = aten::view(%c, size = [s0 * 6]) : f32[s0 * 6] <a>
      %same = aten::add.Tensor(%fa, %fc) : f32[s0 * 6] <a>
      %mixed = aten::add.Tensor(%fa, %fb) : f32[s0 * 6] <a>
      %after = aten::neg(%mixed) : f32[s0 * 6] <a>)";
  EXPECT_EQ(LayoutOf(kNodes, "same", kBoth), "outermost");
  EXPECT_EQ(LayoutOf(kNodes, "mixed", kBoth), "unknown (mixed)");
  EXPECT_EQ(LayoutOf(kNodes, "after", kBoth), "unknown (mixed)");
}

// What is made of sizes takes the order of what it meets.
TEST(ChunkLayout, NumbersAndConstants) {
  constexpr std::string_view kNodes = R"(
      %z = aten::zeros(size = [s0 * 6], dtype = f32) : f32[s0 * 6] <a>
      %n = aten::arange(s0 * 6) : i64[s0 * 6] <a>
      %v = aten::view(%n, size = [6, s0]) : i64[6, s0] <a>
      %m = aten::add.Tensor(%z, %n) : f32[s0 * 6] <a>
      %e = aten::expand(%o, size = [s0 * 6, 8]) : f32[s0 * 6, 8]{0, 1} <a>
      %f = aten::view(%q, size = [s0 * 6]) : f32[s0 * 6] <a>
      %y = aten::add.Tensor(%f, %m) : f32[s0 * 6] <a>)";
  constexpr std::string_view kInputs = R"(, %q: input "q" f32[6, s0], %o: input "o" f32[1, 8])";
  EXPECT_EQ(LayoutOf(kNodes, "z", kInputs), "constant");
  EXPECT_EQ(LayoutOf(kNodes, "n", kInputs), "numbered");
  EXPECT_EQ(LayoutOf(kNodes, "v", kInputs), "numbered");
  EXPECT_EQ(LayoutOf(kNodes, "m", kInputs), "numbered");
  EXPECT_EQ(LayoutOf(kNodes, "e", kInputs), "constant");
  EXPECT_EQ(LayoutOf(kNodes, "y", kInputs), "after 6 (f)");
}

TEST(ChunkLayout, PartsAndConcatenations) {
  constexpr std::string_view kNodes = R"(
      %f = aten::view(%q, size = [s0 * 6, 8]) : f32[s0 * 6, 8] <a>
      %a, %b = aten::split_with_sizes(%f, split_sizes = [s0 * 2, s0 * 4]) : (f32[s0 * 2, 8], f32[s0 * 4, 8]) offset [0, s0 * 16] <a>
      %one = aten::slice.Tensor(%f, start = s0 * 3, end = s0 * 4) : f32[s0, 8] offset [s0 * 24] <a>
      %c = aten::cat([%b, %one]) : f32[s0 * 5, 8] <a>
      %d = aten::cat([%f, %f], dim = 1) : f32[s0 * 6, 16] <a>
      %g = aten::slice_backward(%one, input_sizes = [s0 * 6, 8], dim = 0, start = s0 * 3, end = s0 * 4, step = 1) : f32[s0 * 6, 8] <a>)";
  StepText step = {kNodes, R"(result "c" %c, result "d" %d, result "a" %a)", kBatchSecond};
  EXPECT_EQ(LayoutOf(step, "a"), "after 2 (a)");
  EXPECT_EQ(LayoutOf(step, "b"), "after 4 (a)");
  EXPECT_EQ(LayoutOf(step, "one"), "outermost");
  EXPECT_EQ(LayoutOf(step, "c"), "after 5 (c)");
  EXPECT_EQ(LayoutOf(step, "d"), "after 6 (f)");
  EXPECT_EQ(LayoutOf(step, "g"), "after 6 (g)");
  // The first third of all rows is not a third of each sample.
  step.inputs = kBatchFirst;
  EXPECT_EQ(LayoutOf(step, "a"), "unknown (a)");
  EXPECT_EQ(LayoutOf(step, "one"), "unknown (one)");
}

TEST(ChunkLayout, CollectivesPutRanksBeforeIt) {
  constexpr std::string_view kNodes = R"(
      %g = _c10d_functional::all_gather_into_tensor(%x, group_size = 2, group_name = "tp") : f32[s0 * 2, 8] <a>
      %h = _c10d_functional::wait_tensor(%g) : f32[s0 * 2, 8] <a>
      %v = aten::view(%h, size = [2, s0, 8]) : f32[2, s0, 8] <a>
      %wrong = aten::view(%h, size = [s0, 16]) : f32[s0, 16] <a>
      %r = _c10d_functional::reduce_scatter_tensor(%h, reduce_op = "sum", group_size = 2, group_name = "tp") : f32[s0, 8] <a>
      %f = aten::view(%x, size = [s0 * 2, 4]) : f32[s0 * 2, 4] <a>
      %s = _c10d_functional::reduce_scatter_tensor(%f, reduce_op = "sum", group_size = 2, group_name = "tp") : f32[s0, 4] <a>
      %a = _c10d_functional::all_reduce(%f, reduce_op = "sum", group_name = "tp") : f32[s0 * 2, 4] <a>)";
  const auto of = [&](std::string_view value) {
    return LayoutOf(StepText{kNodes,
                             R"(result "v" %v, result "w" %wrong, result "r" %r, result "s" %s,
                                result "a" %a)"},
                    value);
  };
  EXPECT_EQ(of("h"), "after 2 (g)");
  EXPECT_EQ(of("v"), "outermost");
  EXPECT_EQ(of("wrong"), "unknown (wrong)");
  EXPECT_EQ(of("r"), "outermost");
  EXPECT_EQ(of("s"), "unknown (s)");
  EXPECT_EQ(of("a"), "outermost");
}

// Rows sorted by expert, and brought back in the order of the tokens: the inverse of a permutation
// says where each one goes, be it written or sorted.
TEST(ChunkLayout, PermutationsAndTheirInverses) {
  constexpr std::string_view kNodes = R"(
      %e = aten::view(%k, size = [s0 * 6]) : i64[s0 * 6] <a>
      %sorted, %to_slots = aten::sort.stable(%e, stable = true, dim = 0) : (i64[s0 * 6], i64[s0 * 6]) <a>
      %n = aten::arange(s0 * 6) : i64[s0 * 6] <a>
      %z = aten::zeros_like(%to_slots) : i64[s0 * 6] <a>
      %to_rows = aten::scatter.src(%z, dim = 0, index = %to_slots, src = %n) : i64[s0 * 6] <a>
      %lost = aten::scatter.src(%z, dim = 0, index = %sorted, src = %n) : i64[s0 * 6] <a>
      %again, %inverse = aten::sort(%to_slots, dim = 0) : (i64[s0 * 6], i64[s0 * 6]) <a>
      %down, %backwards = aten::sort(%to_slots, dim = 0, descending = true) : (i64[s0 * 6], i64[s0 * 6]) <a>
      %t = aten::view(%q, size = [s0 * 6, 8]) : f32[s0 * 6, 8] <a>
      %rows = aten::index_select(%t, dim = 0, index = %to_slots) : f32[s0 * 6, 8] <a>
      %back = aten::index_select(%rows, dim = 0, index = %to_rows) : f32[s0 * 6, 8] <a>)";
  const auto of = [&](std::string_view value, bool first) {
    const std::string inputs = fmt::format(R"(, %k: input "k" i64[{0}], %q: input "q" f32[{0}, 8])",
                                           first ? "s0, 6" : "6, s0");
    const std::string outputs = fmt::format("result \"{0}\" %{0}", value);
    return LayoutOf(StepText{kNodes, outputs, inputs}, value);
  };
  EXPECT_EQ(of("to_slots", true), "unknown (sorted)");
  EXPECT_EQ(of("rows", true), "unknown (sorted)");
  EXPECT_EQ(of("to_rows", true), "outermost");
  EXPECT_EQ(of("back", true), "outermost");
  EXPECT_EQ(of("inverse", true), "outermost");
  EXPECT_EQ(of("backwards", true), "unknown (down)");
  EXPECT_EQ(of("lost", true), "unknown (lost)");
  EXPECT_EQ(of("back", false), "after 6 (e)");
  EXPECT_EQ(of("inverse", false), "after 6 (e)");
}

TEST(ChunkLayout, LookingUpAndWritingAlongOtherDimensions) {
  constexpr std::string_view kNodes = R"(
      %f = aten::view(%q, size = [s0 * 6, 8]) : f32[s0 * 6, 8] <a>
      %best, %which = aten::topk(%f, k = 2) : (f32[s0 * 6, 2], i64[s0 * 6, 2]) <a>
      %g = aten::gather(%f, dim = 1, index = %which) : f32[s0 * 6, 2] <a>
      %z = aten::zeros_like(%f) : f32[s0 * 6, 8] <a>
      %m = aten::scatter.value(%z, dim = 1, index = %which, value = 1) : f32[s0 * 6, 8] <a>
      %u = aten::flip(%f, dims = [1]) : f32[s0 * 6, 8] <a>
      %d = aten::flip(%f, dims = [0]) : f32[s0 * 6, 8] <a>
      %l = aten::embedding(%w, %which) : f32[s0 * 6, 2, 8] <a>)";
  for (const char* value : {"best", "which", "g", "m", "u", "l"}) {
    EXPECT_EQ(LayoutOf(kNodes, value, kBatchFirst), "outermost") << value;
    EXPECT_EQ(LayoutOf(kNodes, value, kBatchSecond), "after 6 (f)") << value;
  }
  EXPECT_EQ(LayoutOf(kNodes, "d", kBatchFirst), "unknown (d)");
}

// Samples may change places, as rows of a step may; only parts of samples may not.
TEST(ChunkLayout, SamplesInAnotherOrderAreStillSamples) {
  constexpr std::string_view kNodes = R"(
      %d = aten::flip(%x, dims = [0]) : f32[s0, 8] <a>
      %f = aten::view(%d, size = [s0 * 8]) : f32[s0 * 8] <a>)";
  EXPECT_EQ(LayoutOf(kNodes, "d"), "outermost");
  EXPECT_EQ(LayoutOf(kNodes, "f"), "outermost");
}

// Context parallelism splits sequences into halves and concatenates them again.
TEST(ChunkLayout, SlicesOfSamplesAreSamples) {
  constexpr std::string_view kNodes = R"(
      %a, %b = aten::split_with_sizes(%x, split_sizes = [floordiv(s0, 2), s0 - floordiv(s0, 2)]) : (f32[floordiv(s0, 2), 8], f32[s0 - floordiv(s0, 2), 8]) offset [0, floordiv(s0, 2) * 8] <a>
      %n = aten::neg(%a) : f32[floordiv(s0, 2), 8] <a>
      %c = aten::cat([%b, %n]) : f32[s0, 8] <a>
      %d = aten::cat([%n, %a]) : f32[floordiv(s0, 2) * 2, 8] <a>
      %e = aten::cat([%c, %n]) : f32[s0 + floordiv(s0, 2), 8] <a>
      %g = aten::slice_backward(%n, input_sizes = [s0, 8], dim = 0, start = 0, end = floordiv(s0, 2), step = 1) : f32[s0, 8] <a>
      %f = aten::view(%c, size = [s0 * 8]) : f32[s0 * 8] <a>
      %v = aten::view(%x, size = [s0 * 2, 4]) : f32[s0 * 2, 4] <a>
      %h = aten::slice.Tensor(%v, end = s0) : f32[s0, 4] <a>)";
  EXPECT_EQ(LayoutOf(kNodes, "a"), "samples (a)");
  EXPECT_EQ(LayoutOf(kNodes, "n"), "samples (a)");
  EXPECT_EQ(LayoutOf(kNodes, "c"), "outermost");
  EXPECT_EQ(LayoutOf(kNodes, "d"), "outermost");
  EXPECT_EQ(LayoutOf(kNodes, "e"), "samples (e)");
  EXPECT_EQ(LayoutOf(kNodes, "g"), "outermost");
  EXPECT_EQ(LayoutOf(kNodes, "f"), "outermost");
  // Half of the rows of all samples.
  EXPECT_EQ(LayoutOf(kNodes, "h"), "unknown (h)");
}

}  // namespace
}  // namespace gt::chunk_layout_test
