#include "gt/sim/recorded_memory.h"

#include <gtest/gtest.h>

#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/sim/memory_curve.h"

namespace gt::recorded_memory_test {
namespace {

RecordedMemory MemoryOf(const Graph& graph, const SpanOptions& options = {.least_kernels = 1}) {
  return MeasureRecorded(graph, StorageTable(graph), DeviceKind::kCuda, options);
}

// One span: what it needs at its peak, as without recording.
TEST(RecordedMemory, OfKernelsAloneIsThatOfTheStep) {
  const auto graph = Parse(R"(graph @step(%x: input "x" f32[1024] @cuda:0) {
    %a = aten::neg(%x) : f32[1024] @cuda:0
    %b = aten::exp(%a) : f32[1024] @cuda:0
    %c = aten::add.Tensor(%a, %b) : f32[1024] @cuda:0
    %d = aten::neg(%c) : f32[1024] @cuda:0
    return result "d" %d
  })");
  Verify(*graph);
  const RecordedMemory memory = MemoryOf(*graph);
  EXPECT_EQ(memory.pool, 3 * 4096);
  EXPECT_EQ(memory.rest, 0);
  const MemoryCurve curve = MeasureMemory(*graph, {.recordings = SpanOptions{.least_kernels = 1}});
  EXPECT_EQ(curve.peak, 4 * 4096);
  EXPECT_EQ(curve.recording_pool, 3 * 4096);
  EXPECT_EQ(curve.recorded_peak, curve.peak);
}

// The span's peak is over when that between the spans begins, but its memory is not free for it: 3 + 2
// blocks of 4 KiB where the step alone needs 4 with its input. %s is copied; %e is freed then.
TEST(RecordedMemory, OfSpansIsBesideTheRest) {
  const auto graph =
      Parse(R"(graph @step(%x: input "x" f32[1024] @cuda:0, %n: input "n" i64[1] @cuda:0) {
    symbols { u0: data, hint 1024, range [0, 1024] }
    %a = aten::neg(%x) : f32[1024] @cuda:0
    %b = aten::exp(%a) : f32[1024] @cuda:0
    %c = aten::add.Tensor(%a, %b) : f32[1024] @cuda:0
    gt::read_ints(%n) binds [u0]
    %part = aten::slice.Tensor(%c, end = u0) : f32[u0] @cuda:0
    %e = aten::exp(%part) : f32[u0] @cuda:0
    %f = aten::neg(%e) : f32[u0] @cuda:0
    %s = aten::sum(%f) : f32[] @cuda:0
    %d = aten::mul.Tensor(%c, %s) : f32[1024] @cuda:0
    return result "d" %d
  })");
  Verify(*graph);
  const RecordedMemory memory = MemoryOf(*graph);
  EXPECT_EQ(memory.pool, 3 * 4096) << "%a, %b and %c";
  EXPECT_EQ(memory.rest, 2 * 4096) << "%e and %f";
  const MemoryCurve curve = MeasureMemory(*graph, {.recordings = SpanOptions{.least_kernels = 1}});
  EXPECT_EQ(curve.peak, 4 * 4096 + 512);
  EXPECT_EQ(curve.recorded_peak, (1 + 3 + 2) * 4096 + 512);
}

// A gather writes into the recordings' memory, a sum is copied there when it is complete.
TEST(RecordedMemory, CollectivesWriteWhereTheyCan) {
  const auto graph = Parse(R"(graph @step(%x: input "x" f32[1024] @cuda:0) {
    %g = _c10d_functional::all_gather_into_tensor(%x, group_size = 2, group_name = "fsdp") : f32[2048] @cuda:0
    %w = _c10d_functional::wait_tensor(%g) : f32[2048] @cuda:0
    %a = aten::neg(%w) : f32[2048] @cuda:0
    %r = _c10d_functional::all_reduce(%a, reduce_op = "sum", group_name = "fsdp") : f32[2048] @cuda:0
    %v = _c10d_functional::wait_tensor(%r) : f32[2048] @cuda:0
    %b = aten::neg(%v) : f32[2048] @cuda:0
    return result "b" %b
  })");
  Verify(*graph);
  const RecordedMemory memory = MemoryOf(*graph);
  EXPECT_EQ(memory.pool, 2 * 8192);
  EXPECT_EQ(memory.rest, 8192) << "%r until it is copied";
  const RecordedMemory recorded =
      MemoryOf(*graph, {.least_kernels = 1, .records_collectives = true});
  EXPECT_EQ(recorded.rest, 0);
}

TEST(RecordedMemory, WithoutRecordingsThereIsNone) {
  const auto graph = Parse(R"(graph @step(%x: input "x" f32[1024]) {
    %a = aten::neg(%x) : f32[1024]
    return result "a" %a
  })");
  const MemoryCurve curve = MeasureMemory(*graph, {.recordings = SpanOptions{.least_kernels = 1}});
  EXPECT_EQ(curve.recording_pool, 0);
  EXPECT_EQ(curve.recorded_peak, curve.peak);
}

}  // namespace
}  // namespace gt::recorded_memory_test
