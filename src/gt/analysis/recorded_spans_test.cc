#include "gt/analysis/recorded_spans.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::recorded_spans_test {
namespace {

// The partition as text: nodes by the name of their first result, spans in brackets, then what must be at a
// fixed address, and views that stay outside.
std::string SpansOf(std::string_view text, SpanOptions options = {.least_kernels = 1}) {
  const auto graph = Parse(text);
  Verify(*graph);
  const RecordedSpans found = FindRecordedSpans(*graph, options);
  std::string line;
  auto span = found.spans.begin();
  for (const Node* node : graph->nodes()) {
    if (!line.empty()) line += ' ';
    if (span != found.spans.end() && span->begin == node->number()) line += "[ ";
    line += node->result_count() > 0 ? node->result()->name() : "read";
    if (span != found.spans.end() && span->end == node->number() + 1) {
      line += fmt::format(" ]{}", span->kernels);
      ++span;
    }
  }
  for (const Value* value : found.fixed) line += fmt::format("; fixed {}", value->name());
  for (const Node* view : found.loose_views)
    line += fmt::format("; loose {}", view->result()->name());
  return line + fmt::format("; {} between", found.between);
}

// Kernels, and views between them.
TEST(RecordedSpans, KernelsAloneAreOneSpan) {
  EXPECT_EQ(SpansOf(R"(graph @step(%x: input "x" f32[4, 2] @cuda:0) {
    %t = aten::t(%x) : f32[2, 4]{1, 2} @cuda:0
    %a = aten::neg(%t) : f32[2, 4]{1, 2} @cuda:0
    %u = aten::t(%a) : f32[4, 2] @cuda:0
    %b = aten::exp(%u) : f32[4, 2] @cuda:0
    %v = aten::t(%b) : f32[2, 4]{1, 2} @cuda:0
    return result "v" %v
  })"),
            "t [ a u b ]2 v; 0 between");
}

// What is counted on the device decides sizes: the host reads it, and everything of such a size runs node
// by node. A view of it in the middle of kernels cuts nothing. The sum has one size in every step.
TEST(RecordedSpans, SizesFromDataRunBetween) {
  EXPECT_EQ(SpansOf(R"(graph @step(%x: input "x" f32[8] @cuda:0, %n: input "n" i64[1] @cuda:0) {
    symbols { u0: data, hint 3, range [0, 8] }
    %m = aten::neg(%n) : i64[1] @cuda:0
    gt::read_ints(%m) binds [u0]
    %part = aten::slice.Tensor(%x, end = u0) : f32[u0] @cuda:0
    %a = aten::neg(%x) : f32[8] @cuda:0
    %row = aten::unsqueeze(%part, dim = 0) : f32[1, u0]{u0, 1} @cuda:0
    %b = aten::neg(%a) : f32[8] @cuda:0
    %e = aten::exp(%row) : f32[1, u0] @cuda:0
    %s = aten::sum(%e) : f32[] @cuda:0
    %c = aten::mul.Tensor(%b, %s) : f32[8] @cuda:0
    return result "c" %c
  })"),
            "[ m ]1 read part [ a row b ]2 e s [ c ]1; fixed s; 3 between");
}

// Only nodes between spans look at the view of what is made between them: nothing need be copied.
TEST(RecordedSpans, ViewsForOthersStayOutside) {
  EXPECT_EQ(SpansOf(R"(graph @step(%x: input "x" f32[4, 2] @cuda:0) {
    %h = gt::offload(%x) : f32[4, 2]
    %r = gt::reload(%h, device = "cuda:0") : f32[4, 2] @cuda:0
    %w = gt::wait_transfer(%r, %h) : f32[4, 2] @cuda:0
    %a = aten::neg(%x) : f32[4, 2] @cuda:0
    %t = aten::t(%w) : f32[2, 4]{1, 2} @cuda:0
    %b = aten::neg(%a) : f32[4, 2] @cuda:0
    %g = gt::offload(%t) : f32[2, 4]{1, 2}
    return result "b" %b, result "g" %g
  })"),
            "h r w [ a t b ]2 g; loose t; 4 between");
}

// What comes back from the host is written where it is read.
TEST(RecordedSpans, WhatComesBackIsFixed) {
  EXPECT_EQ(SpansOf(R"(graph @step(%x: input "x" f32[4] @cuda:0) {
    %h = gt::offload(%x) : f32[4]
    %r = gt::reload(%h, device = "cuda:0") : f32[4] @cuda:0
    %a = aten::neg(%x) : f32[4] @cuda:0
    %w = gt::wait_transfer(%r, %h) : f32[4] @cuda:0
    %b = aten::add.Tensor(%a, %w) : f32[4] @cuda:0
    return result "b" %b
  })"),
            "h r [ a ]1 w [ b ]1; fixed r; 3 between");
}

constexpr std::string_view kGathers =
    R"(graph @step(%x: input "x" f32[4] @cuda:0, %n: input "n" i64[1] @cuda:0) {
    symbols { u0: data, hint 3, range [0, 8] }
    %g = _c10d_functional::all_gather_into_tensor(%x, group_size = 2, group_name = "fsdp") : f32[8] @cuda:0
    %a = aten::neg(%x) : f32[4] @cuda:0
    %w = _c10d_functional::wait_tensor(%g) : f32[8] @cuda:0
    %b = aten::exp(%w) : f32[8] @cuda:0
    %h = _c10d_functional::all_gather_into_tensor(%a, group_size = 2, group_name = "fsdp") : f32[8] @cuda:0
    %c = aten::neg(%b) : f32[8] @cuda:0
    gt::read_ints(%n) binds [u0]
    %v = _c10d_functional::wait_tensor(%h) : f32[8] @cuda:0
    %d = aten::add.Tensor(%c, %v) : f32[8] @cuda:0
    %r = _c10d_functional::all_reduce(%d, reduce_op = "sum", group_name = "fsdp") : f32[8] @cuda:0
    %s = _c10d_functional::wait_tensor(%r) : f32[8] @cuda:0
    %e = aten::exp(%s) : f32[8] @cuda:0
    return result "e" %e
  })";

// One that is waited for after the host has read is launched by the host.
TEST(RecordedSpans, CollectivesAreRecordedWithTheirWaits) {
  EXPECT_EQ(SpansOf(kGathers, {.least_kernels = 1, .records_collectives = true}),
            "[ g a w b ]3 h [ c ]1 read v [ d r s e ]3; fixed h; 3 between");
}

// A backend that cannot be recorded: gathers write to the address that they are given, a sum is copied there.
TEST(RecordedSpans, CollectivesThatCannotBeRecorded) {
  EXPECT_EQ(SpansOf(kGathers),
            "g [ a ]1 w [ b ]1 h [ c ]1 read v [ d ]1 r s [ e ]1; fixed g; fixed h; fixed s; "
            "7 between");
}

// A few kernels are launched as quickly one by one, unless a span reads what they make.
TEST(RecordedSpans, ShortSpansAreNone) {
  EXPECT_EQ(SpansOf(kGathers, {.least_kernels = 2, .records_collectives = true}),
            "[ g a w b ]3 h [ c ]1 read v [ d r s e ]3; fixed h; 3 between");
  EXPECT_EQ(SpansOf(kGathers, {.least_kernels = 2}), "g a w b h c read v d r s e; 12 between");
  EXPECT_EQ(SpansOf(kGathers, {.least_kernels = 4, .records_collectives = true}),
            "g a w b h c read v d r s e; 12 between");
}

// Sums of products in float32 look their group sizes up on the host.
TEST(RecordedSpans, GroupedProductsDependOnTheDtype) {
  for (const auto& [dtype, expected] : {std::pair{"bf16", "[ a m b ]3; 0 between"},
                                        {"f32", "[ a ]1 m [ b ]1; fixed m; 1 between"}}) {
    EXPECT_EQ(
        SpansOf(fmt::format(
            R"(graph @step(%x: input "x" {0}[8, 16] @cuda:0, %w: input "w" {0}[2, 16, 16] @cuda:0, %o: input "o" i32[2] @cuda:0) {{
      %a = aten::neg(%x) : {0}[8, 16] @cuda:0
      %m = aten::_grouped_mm(%a, %w, offs = %o) : {0}[8, 16] @cuda:0
      %b = aten::neg(%m) : {0}[8, 16] @cuda:0
      return result "b" %b
    }})",
            dtype)),
        expected);
  }
}

TEST(RecordedSpans, OtherDevicesHaveNone) {
  constexpr std::string_view kStep = R"(graph @step(%x: input "x" f32[4]) {
    %a = aten::neg(%x) : f32[4]
    %b = aten::neg(%a) : f32[4]
    return result "b" %b
  })";
  EXPECT_EQ(SpansOf(kStep), "a b; 2 between");
  EXPECT_EQ(SpansOf(kStep, {.device = DeviceKind::kCpu, .least_kernels = 1}),
            "[ a b ]2; 0 between");
}

}  // namespace
}  // namespace gt::recorded_spans_test
