#include "gt/sim/recorded_memory.h"

#include <gtest/gtest.h>

#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/sim/memory_curve.h"

namespace gt::recorded_memory_test {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;
constexpr int64_t kSegment = 2 * kMegabyte;  // the least that the allocator takes

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
  EXPECT_EQ(memory.in_use, 3 * 4096);
  EXPECT_EQ(memory.rest, 0);
  const MemoryCurve curve = MeasureMemory(*graph, {.recordings = SpanOptions{.least_kernels = 1}});
  EXPECT_EQ(curve.peak, 4 * 4096);
  EXPECT_EQ(curve.recording_pool, kSegment);
  EXPECT_EQ(curve.recorded_peak, 4096 + kSegment);
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
  EXPECT_EQ(memory.in_use, 3 * 4096) << "%a, %b and %c";
  EXPECT_EQ(memory.rest, 2 * 4096) << "%e and %f";
  const MemoryCurve curve = MeasureMemory(*graph, {.recordings = SpanOptions{.least_kernels = 1}});
  EXPECT_EQ(curve.peak, 4 * 4096 + 512);
  EXPECT_EQ(curve.recorded_peak, (1 + 2) * 4096 + 512 + kSegment);
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
  EXPECT_EQ(memory.in_use, 2 * 8192);
  EXPECT_EQ(memory.rest, 8192) << "%r until it is copied";
  const RecordedMemory recorded =
      MemoryOf(*graph, {.least_kernels = 1, .records_collectives = true});
  EXPECT_EQ(recorded.rest, 0);
}

// Each value is larger than those that are free: 12, 16, 20 and 24 MiB, of which two are alive at a time. In one
// piece the third has room behind the second, and the fourth where the first two were.
TEST(RecordedMemory, OnePieceLeavesFewerGaps) {
  const auto graph = Parse(R"(graph @step(%x: input "x" f32[1, 1048576] @cuda:0) {
    %a = aten::repeat(%x, repeats = [3, 1]) : f32[3, 1048576] @cuda:0
    %b = aten::constant_pad_nd(%a, pad = [0, 0, 0, 1]) : f32[4, 1048576] @cuda:0
    %c = aten::constant_pad_nd(%b, pad = [0, 0, 0, 1]) : f32[5, 1048576] @cuda:0
    %d = aten::constant_pad_nd(%c, pad = [0, 0, 0, 1]) : f32[6, 1048576] @cuda:0
    return result "d" %d
  })");
  Verify(*graph);
  const RecordedMemory memory = MemoryOf(*graph);
  EXPECT_EQ(memory.in_use, 44 * kMegabyte);
  EXPECT_GT(memory.reserve, 44 * kMegabyte);
  EXPECT_EQ(memory.pool, 48 * kMegabyte) << "72 in segments of their own";
}

// Blocks of one size leave no gaps: nothing is reserved that would not be taken anyway.
TEST(RecordedMemory, NothingIsReservedInVain) {
  const auto graph = Parse(R"(graph @step(%x: input "x" f32[4194304] @cuda:0) {
    %a = aten::neg(%x) : f32[4194304] @cuda:0
    %b = aten::exp(%a) : f32[4194304] @cuda:0
    %c = aten::neg(%b) : f32[4194304] @cuda:0
    return result "c" %c
  })");
  Verify(*graph);
  const RecordedMemory memory = MemoryOf(*graph);
  EXPECT_EQ(memory.reserve, 0);
  EXPECT_EQ(memory.pool, 32 * kMegabyte);
}

// The libraries' workspace is in the recordings' memory.
TEST(RecordedMemory, WorkspaceIsPartOfIt) {
  const auto graph = Parse(R"(graph @step(%x: input "x" f32[1024] @cuda:0) {
    %a = aten::neg(%x) : f32[1024] @cuda:0
    return result "a" %a
  })");
  const RecordedMemory memory = MeasureRecorded(*graph, StorageTable(*graph), DeviceKind::kCuda,
                                                {.least_kernels = 1}, 32 * kMegabyte);
  EXPECT_EQ(memory.in_use, 32 * kMegabyte + 4096);
  EXPECT_EQ(memory.pool, 32 * kMegabyte + kSegment);
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
