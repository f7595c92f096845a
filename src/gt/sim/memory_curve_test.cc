#include "gt/sim/memory_curve.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/sim/type_sizes.h"

namespace gt::memory_curve_test {
namespace {

// A graph that verifies, and its curve. All sizes below are given so that one row of 4 f32 is 16
// bytes.
struct Measured {
  explicit Measured(const std::string& text, const MemoryOptions& options = {})
      : graph(Parse(text)) {
    Verify(*graph);
    curve = MeasureMemory(*graph, options);
  }

  // Of the storage whose memory this value allocates; null when it looks into another's.
  const StorageLife* Find(const std::string& name) const {
    const Value* value = graph->FindValue(name);
    EXPECT_NE(value, nullptr) << name;
    for (const StorageLife& life : curve.storages) {
      if (life.value == value) return &life;
    }
    return nullptr;
  }
  MemoryCategory CategoryOf(const std::string& name) const { return Find(name)->category; }
  int64_t AtPeak(MemoryCategory category) const {
    return curve.at_peak[static_cast<size_t>(category)];
  }
  std::vector<std::string> AliveAtPeak() const {
    std::vector<std::string> names;
    for (int32_t i : curve.alive_at_peak) {
      names.push_back(curve.storages[static_cast<size_t>(i)].value->name());
    }
    return names;
  }

  std::unique_ptr<Graph> graph;
  MemoryCurve curve;
};

using Bytes = std::vector<int64_t>;

// A result is allocated before the operand that dies there is freed: two are alive while a node of
// a chain runs, and one after it.
TEST(MemoryCurveTest, ChainHoldsTwoAtATime) {
  Measured m(R"(graph @g(%x: input "x" f32[2, 4]) {
  %a = aten::neg(%x) : f32[2, 4]
  %b = aten::neg(%a) : f32[2, 4]
  %c = aten::neg(%b) : f32[2, 4]
  return result "c" %c
})");
  EXPECT_EQ(m.curve.during, (Bytes{64, 96, 96}));
  EXPECT_EQ(m.curve.after, (Bytes{64, 64, 64}));
  EXPECT_EQ(m.curve.peak, 96);
  EXPECT_EQ(m.curve.peak_position, 1);
  EXPECT_EQ(m.curve.peak_node->result()->name(), "b");
  EXPECT_EQ(m.AliveAtPeak(), (std::vector<std::string>{"x", "a", "b"}));
  EXPECT_EQ(m.CategoryOf("a"), MemoryCategory::kTemporary);
  EXPECT_EQ(m.CategoryOf("c"), MemoryCategory::kOutput);
}

// A view costs nothing and keeps its base: %a lives until the last use of what looks into it.
TEST(MemoryCurveTest, ViewsKeepTheirBase) {
  Measured m(R"(graph @g(%x: input "x" f32[2, 4]) {
  %a = aten::neg(%x) : f32[2, 4]
  %t = aten::t(%a) : f32[4, 2]{1, 4}
  %u = aten::t(%t) : f32[2, 4]
  %b = aten::neg(%x) : f32[2, 4]
  %c = aten::mm(%b, %t) : f32[2, 2]
  %d = aten::neg(%c) : f32[2, 2]
  return result "d" %d
})");
  EXPECT_EQ(m.Find("t"), nullptr);
  EXPECT_EQ(m.Find("u"), nullptr);
  EXPECT_EQ(m.Find("a")->last, 4);
  EXPECT_EQ(m.curve.during, (Bytes{64, 64, 64, 96, 112, 64}));
  EXPECT_EQ(m.curve.after, (Bytes{64, 64, 64, 96, 48, 48}));
}

// Operators that hand their operand's memory through in spite of what their schemas say.
TEST(MemoryCurveTest, HiddenViewsAreViews) {
  Measured m(R"(graph @g(%x: input "x" f32[2, 4]) {
  %a = aten::neg(%x) : f32[2, 4]
  %b = aten::_unsafe_view(%a, size = [8]) : f32[8]
  %r = aten::reshape(%a, shape = [8]) : f32[8]
  return result "b" %b, result "r" %r
})");
  EXPECT_EQ(m.Find("b"), nullptr);
  EXPECT_EQ(m.Find("r"), nullptr);
  EXPECT_EQ(m.curve.after, (Bytes{64, 64, 64}));
}

// A reshape that its operand's strides do not allow as a view is a copy.
TEST(MemoryCurveTest, ReshapeCopiesWhereItMust) {
  Measured m(R"(graph @g(%x: input "x" f32[2, 4]) {
  %a = aten::neg(%x) : f32[2, 4]
  %t = aten::t(%a) : f32[4, 2]{1, 4}
  %r = aten::reshape(%t, shape = [8]) : f32[8]
  return result "r" %r
})");
  ASSERT_NE(m.Find("r"), nullptr);
  EXPECT_EQ(m.curve.during, (Bytes{64, 64, 96}));
  EXPECT_EQ(m.curve.after, (Bytes{64, 64, 64}));
}

// Each result is a storage of its own; the one nobody uses is alive only while its node runs.
TEST(MemoryCurveTest, ResultsLiveApart) {
  Measured m(R"(graph @g(%x: input "x" f32[4, 4]) {
  %v, %i = aten::topk(%x, k = 2) : (f32[4, 2], i64[4, 2])
  %a = aten::neg(%v) : f32[4, 2]
  return result "a" %a
})");
  EXPECT_EQ(m.Find("v")->last, 1);
  EXPECT_EQ(m.Find("i")->last, 0);
  EXPECT_EQ(m.curve.during, (Bytes{64 + 32 + 64, 64 + 32 + 32}));
  EXPECT_EQ(m.curve.after, (Bytes{64 + 32, 64 + 32}));
}

// So is what gloo takes for a sum in the order of the ranks.
TEST(MemoryCurveTest, SumsOfGlooTakeABufferUntilTheWait) {
  const std::unique_ptr<Graph> graph = Parse(R"(graph @g(%x: input "x" f32[8]) {
  %a = _c10d_functional::reduce_scatter_tensor(%x, reduce_op = "sum", group_size = 4, group_name = "dp") : f32[2]
  %b = aten::neg(%x) : f32[8]
  %w = _c10d_functional::wait_tensor(%a) : f32[2]
  %c = aten::neg(%w) : f32[2]
  return result "c" %c, result "b" %b
})");
  MemoryOptions options;
  EXPECT_EQ(MeasureMemory(*graph, options).during, (Bytes{40, 72, 72, 80}));
  options.gloo = GlooMemory{.group_sizes = {{"dp", 4}}};
  EXPECT_EQ(MeasureMemory(*graph, options).during, (Bytes{72, 104, 104, 80}));
  options.gloo->group_sizes["dp"] = 2;
  EXPECT_EQ(MeasureMemory(*graph, options).during, (Bytes{40, 72, 72, 80}));
}

// Of parameters, optimizer state and buffers, beside the step or in the host's memory.
TEST(MemoryCurveTest, CopiesForCheckpointsAreCounted) {
  constexpr const char* kStep =
      R"(graph @g(%w: param "w" f32[8]{0}, %b: buffer "b" f32[4]{0}, %x: input "x" f32[8]{0}) {{
  %y = aten::mul.Tensor(%w, %x) : f32[8]{0}
  return result "y" %y
}})";
  for (const std::string device : {"", " @cuda"}) {
    const std::unique_ptr<Graph> graph = Parse(fmt::format(fmt::runtime(kStep), device));
    MemoryOptions options = {.cuda_rounding = 1, .optimizer_bytes_per_element = 8};
    const MemoryCurve without = MeasureMemory(*graph, options);
    options.copies_state = true;
    const MemoryCurve with = MeasureMemory(*graph, options);
    constexpr int64_t kCopies = 32 + 64 + 16;
    const bool on_host = !device.empty();
    EXPECT_EQ(with.state_copies, kCopies);
    EXPECT_EQ(with.peak, without.peak + (on_host ? 0 : kCopies));
    EXPECT_EQ(with.elsewhere_peak, without.elsewhere_peak + (on_host ? kCopies : 0));
    EXPECT_EQ(with.at_peak[static_cast<size_t>(MemoryCategory::kCheckpoint)],
              on_host ? 0 : kCopies);
  }
}

// What a collective reads and writes is alive until the wait, although nothing else uses it.
TEST(MemoryCurveTest, CollectivesHoldTheirBuffersUntilTheWait) {
  Measured m(R"(graph @g(%x: input "x" f32[2, 4]) {
  %a = aten::neg(%x) : f32[2, 4]
  %g = _c10d_functional::all_gather_into_tensor(%a, group_size = 2, group_name = "tp") : f32[4, 4]
  %b = aten::neg(%x) : f32[2, 4]
  %c = aten::neg(%b) : f32[2, 4]
  %w = _c10d_functional::wait_tensor(%g) : f32[4, 4]
  %d = aten::neg(%w) : f32[4, 4]
  return result "c" %c, result "d" %d
})");
  EXPECT_EQ(m.Find("a")->last, 4);
  EXPECT_EQ(m.Find("g")->last, 5);
  EXPECT_EQ(m.Find("w"), nullptr);
  EXPECT_EQ(m.CategoryOf("a"), MemoryCategory::kCommunication);
  EXPECT_EQ(m.CategoryOf("g"), MemoryCategory::kCommunication);
  EXPECT_EQ(m.CategoryOf("b"), MemoryCategory::kTemporary);
  EXPECT_EQ(m.curve.during, (Bytes{64, 128, 160, 192, 160, 192}));
  EXPECT_EQ(m.curve.after, (Bytes{64, 128, 160, 160, 128, 128}));
}

// Several tensors in one call: it holds them all until the last of the waits.
TEST(MemoryCurveTest, CoalescedCollectivesEndWithTheLastWait) {
  Measured m(R"(graph @g(%x: input "x" f32[2, 4], %y: input "y" f32[2, 4]) {
  %a = aten::neg(%x) : f32[2, 4]
  %b = aten::neg(%y) : f32[2, 4]
  %r, %s = _c10d_functional::all_reduce_coalesced([%a, %b], reduce_op = "sum", group_name = "tp") : (f32[2, 4], f32[2, 4])
  %v = _c10d_functional::wait_tensor(%r) : f32[2, 4]
  %c = aten::neg(%v) : f32[2, 4]
  %w = _c10d_functional::wait_tensor(%s) : f32[2, 4]
  return result "c" %c, result "w" %w
})");
  EXPECT_EQ(m.Find("a")->last, 5);
  EXPECT_EQ(m.Find("b")->last, 5);
  EXPECT_EQ(m.Find("r")->last, 5);
  EXPECT_EQ(m.Find("s")->last, 6);
}

// Without a wait in the graph the outside waits.
TEST(MemoryCurveTest, UnwaitedCollectivesLastToTheEnd) {
  Measured m(R"(graph @g(%x: input "x" f32[2, 4]) {
  %a = aten::neg(%x) : f32[2, 4]
  %r = _c10d_functional::all_reduce(%a, reduce_op = "sum", group_name = "tp") : f32[2, 4]
  %b = aten::neg(%x) : f32[2, 4]
  return result "r" %r, result "b" %b
})");
  EXPECT_EQ(m.Find("a")->last, 3);
  EXPECT_EQ(m.curve.after.back(), 32 * 4);
}

constexpr const char* kTrainStep =
    R"(graph @g(%w: param "w" f32[2, 4], %k: buffer "k" f32[4], %c: constant "c" f32[2], %x: input "x" f32[2, 4], %gy: input "gy" f32[2, 4]) {
  %h = aten::_to_copy(%w, dtype = bf16) : bf16[2, 4]
  %g = _c10d_functional::all_gather_into_tensor(%h, group_size = 2, group_name = "fsdp") : bf16[4, 4]
  %f = _c10d_functional::wait_tensor(%g) : bf16[4, 4]
  %o = aten::_to_copy(%f, dtype = f32) : f32[4, 4]
  %y = aten::mm(%x, %o) : f32[2, 4]
  %e = aten::exp(%y) : f32[2, 4]
  %z = aten::neg(%e) : f32[2, 4]
  %n = aten::neg(%k) : f32[4]
  %l = aten::sum(%z) : f32[] {phase = loss}
  %q = aten::mul.Tensor(%gy, %e) : f32[2, 4] {phase = backward}
  %p = aten::mul.Tensor(%q, %x) : f32[2, 4] {phase = backward}
  %d = _c10d_functional::all_reduce(%p, reduce_op = "sum", group_name = "fsdp") : f32[2, 4] {phase = backward}
  %dw = _c10d_functional::wait_tensor(%d) : f32[2, 4] {phase = backward}
  return loss "loss" %l, gradient "w" %dw, update "k" %n
})";

// Each storage is counted in its category.
TEST(MemoryCurveTest, Categories) {
  Measured m(kTrainStep);
  EXPECT_EQ(m.CategoryOf("w"), MemoryCategory::kParameter);
  EXPECT_EQ(m.CategoryOf("k"), MemoryCategory::kBuffer);
  EXPECT_EQ(m.CategoryOf("c"), MemoryCategory::kConstant);
  EXPECT_EQ(m.CategoryOf("x"), MemoryCategory::kInput);
  EXPECT_EQ(m.CategoryOf("h"), MemoryCategory::kCast);
  EXPECT_EQ(m.CategoryOf("g"), MemoryCategory::kGathered);
  EXPECT_EQ(m.CategoryOf("o"), MemoryCategory::kGathered);
  EXPECT_EQ(m.CategoryOf("y"), MemoryCategory::kTemporary);
  EXPECT_EQ(m.CategoryOf("e"), MemoryCategory::kSaved);
  EXPECT_EQ(m.CategoryOf("n"), MemoryCategory::kBuffer);
  EXPECT_EQ(m.CategoryOf("l"), MemoryCategory::kOutput);
  EXPECT_EQ(m.CategoryOf("q"), MemoryCategory::kTemporary);
  EXPECT_EQ(m.CategoryOf("p"), MemoryCategory::kCommunication);
  EXPECT_EQ(m.CategoryOf("d"), MemoryCategory::kGradient);
}

// The categories add up to the peak, and what is alive all the time is in each of them.
TEST(MemoryCurveTest, CategoriesAddUpToThePeak) {
  Measured m(kTrainStep, {.optimizer_bytes_per_element = 8});
  EXPECT_EQ(m.AtPeak(MemoryCategory::kParameter), 32);
  EXPECT_EQ(m.AtPeak(MemoryCategory::kOptimizer), 64);
  EXPECT_EQ(m.AtPeak(MemoryCategory::kConstant), 8);
  EXPECT_EQ(m.AtPeak(MemoryCategory::kInput), 64);
  EXPECT_EQ(m.AtPeak(MemoryCategory::kGathered), 96);  // %g and what it is cast to
  EXPECT_EQ(std::accumulate(m.curve.at_peak.begin(), m.curve.at_peak.end(), int64_t{0}),
            m.curve.peak);
  EXPECT_EQ(std::accumulate(m.curve.constant.begin(), m.curve.constant.end(), int64_t{0}),
            32 + 64 + 16 + 8 + 64);
}

// Sums of earlier batches take as much as the gradients that are added to them, all the time.
TEST(MemoryCurveTest, AccumulationHoldsASecondSetOfGradients) {
  Measured once(kTrainStep), added(kTrainStep, {.accumulates_gradients = true});
  for (size_t i = 0; i < once.curve.during.size(); ++i) {
    EXPECT_EQ(added.curve.during[i], once.curve.during[i] + 32);
  }
}

// An output that shows an input's memory is no new memory.
TEST(MemoryCurveTest, ViewsOfInputsAreFree) {
  Measured m(R"(graph @g(%w: param "w" f32[2, 4]) {
  %t = aten::t(%w) : f32[4, 2]{1, 4}
  return result "t" %t
})");
  EXPECT_EQ(m.curve.storages.size(), 1U);
  EXPECT_EQ(m.curve.during, (Bytes{32}));
}

// Sizes bound by data count with their hints.
TEST(MemoryCurveTest, DataSymbolsCountWithTheirHints) {
  Measured m(R"(graph @g(%x: input "x" bf16[s0, 8], %c: input "c" i64[4]) {
  symbols { s0: input, hint 8, range [2, 64]; u0: data, hint 3; u1: data, hint 5; u2: data, hint 1; u3: data, hint 9 }
  facts { u0 + u1 == s0 }
  gt::read_ints(%c) binds [u0, u1, u2, u3]
  %y = _c10d_functional::all_to_all_single(%x, output_split_sizes = [u2, u3], input_split_sizes = [u0, u1], group_name = "ep") : bf16[u2 + u3, 8]
  %z = _c10d_functional::wait_tensor(%y) : bf16[u2 + u3, 8]
  return result "z" %z
})");
  EXPECT_EQ(m.Find("x")->bytes, 8 * 8 * 2);
  EXPECT_EQ(m.Find("y")->bytes, 10 * 8 * 2);
  EXPECT_EQ(m.curve.during, (Bytes{160, 320, 320}));
}

// On a GPU each storage is rounded up on its own; elsewhere nothing is.
TEST(MemoryCurveTest, RoundsAsTheAllocatorDoes) {
  const std::string text = R"(graph @g(%x: input "x" f32[2, 4] @cuda) {
  %a = aten::neg(%x) : f32[2, 4] @cuda
  %b = aten::neg(%a) : f32[2, 4] @cuda
  return result "b" %b
})";
  Measured m(text);
  EXPECT_EQ(m.curve.device, DeviceKind::kCuda);
  EXPECT_EQ(m.curve.during, (Bytes{1024, 1536}));
  EXPECT_EQ(Measured(text, {.cuda_rounding = 1}).curve.during, (Bytes{64, 96}));
}

// What was moved to the host does not count on the device.
TEST(MemoryCurveTest, DevicesAreCountedApart) {
  const std::string text = R"(graph @g(%x: input "x" f32[128] @cuda) {
  %a = aten::neg(%x) : f32[128] @cuda
  %h = aten::_to_copy(%a, device = "cpu") : f32[128]
  %b = aten::_to_copy(%h, device = "cuda") : f32[128] @cuda
  return result "b" %b
})";
  Measured m(text);
  EXPECT_EQ(m.curve.during, (Bytes{1024, 1024, 1024}));
  EXPECT_EQ(m.curve.elsewhere_peak, 512);
  Measured host(text, {.device = DeviceKind::kCpu});
  EXPECT_EQ(host.curve.during, (Bytes{0, 512, 512}));
  EXPECT_EQ(host.curve.elsewhere_peak, 1024);
}

// On the CPU too, an offloaded value leaves what is measured; it is held until its wait, and the
// reloaded value is a saved activation again.
TEST(MemoryCurveTest, OffloadedValuesAreElsewhere) {
  Measured m(R"(graph @g(%x: input "x" f32[2, 4]) {
  %a = aten::neg(%x) : f32[2, 4]
  %c = gt::offload(%a) : f32[2, 4]
  %n = aten::neg(%x) : f32[2, 4]
  %h = gt::wait_transfer(%c, %a) : f32[2, 4]
  %r = gt::reload(%h, device = "cpu") : f32[2, 4] {phase = backward}
  %b = gt::wait_transfer(%r, %h) : f32[2, 4] {phase = backward}
  %y = aten::add.Tensor(%b, %n) : f32[2, 4] {phase = backward}
  return result "y" %y
})");
  EXPECT_EQ(m.Find("c"), nullptr);
  EXPECT_EQ(m.Find("a")->last, 3);
  EXPECT_EQ(m.CategoryOf("r"), MemoryCategory::kSaved);
  EXPECT_EQ(m.curve.during, (Bytes{64, 64, 96, 96, 96, 96, 128}));
  EXPECT_EQ(m.curve.after[3], 64);
  EXPECT_EQ(m.curve.elsewhere_peak, 32);
}

// On the CPU a kernel that mixes dtypes converts first; numbers without dimensions cost nothing.
TEST(MemoryCurveTest, MixedTypesNeedScratchOnTheCpu) {
  auto text = [](const char* device) {
    return fmt::format(
        R"(graph @g(%x: input "x" bf16[128]{0}, %y: input "y" f32[128]{0}, %n: input "n" f64[]{0}) {{
  %a = aten::mul.Tensor(%x, %y) : f32[128]{0}
  %b = aten::mul.Tensor(%a, %n) : f32[128]{0}
  return result "b" %b
}})",
        device);
  };
  Measured m(text(""));
  EXPECT_EQ(m.curve.scratch, (Bytes{512, 0}));
  EXPECT_EQ(m.curve.during, (Bytes{256 + 512 + 8 + 512 + 512, 256 + 512 + 8 + 512 + 512}));
  EXPECT_EQ(m.AtPeak(MemoryCategory::kTemporary), 512 + 512);
  EXPECT_EQ(Measured(text(" @cuda")).curve.scratch, (Bytes{0, 0}));
}

TEST(MemoryCurveTest, WorkspacesAreThereAllTheTimeOnAGpuAlone) {
  const std::string text = R"(graph @g(%x: input "x" f32[128] @cuda) {
  %a = aten::neg(%x) : f32[128] @cuda
  return result "a" %a
})";
  Measured m(text, {.cuda_workspace_bytes = 4096});
  EXPECT_EQ(m.curve.peak, 1024 + 4096);
  EXPECT_EQ(m.AtPeak(MemoryCategory::kWorkspace), 4096);
  Measured host(text, {.device = DeviceKind::kCpu, .cuda_workspace_bytes = 4096});
  EXPECT_EQ(host.curve.peak, 0);
}

TEST(MemoryCurveTest, CommunicatorsAreThereAllTheTimeOnAGpuAlone) {
  const std::string text = R"(graph @g(%x: input "x" f32[128] @cuda) {
  %a = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "dp") : f32[128] @cuda
  %b = _c10d_functional::wait_tensor(%a) : f32[128] @cuda
  return result "b" %b
})";
  const int64_t without = Measured(text).curve.peak;
  Measured m(text, {.communicators = {.bytes_per_group = 4096}});
  EXPECT_EQ(m.AtPeak(MemoryCategory::kCommunicator), 4096);
  EXPECT_EQ(m.curve.peak, without + 4096);
  EXPECT_EQ(AllocatedPeak(m.curve), without);
  Measured host(text, {.device = DeviceKind::kCpu, .communicators = {.bytes_per_group = 4096}});
  EXPECT_EQ(host.curve.peak, 0);
}

// Sizes of a real run in place of the hints, and what was alive at any node of it.
TEST(MemoryCurveTest, AnyPositionAtAnySizesCanBeLookedAt) {
  const std::string text = R"(graph @g(%x: input "x" f32[s0, 4]) {
  symbols { s0: input, hint 2, range [2, inf] }
  %a = aten::neg(%x) : f32[s0, 4]
  %b = aten::add.Tensor(%a, %x) : f32[s0, 4]
  return result "b" %b
})";
  Measured m(text, {.symbols = {10}});
  EXPECT_EQ(m.curve.peak, 3 * 160);
  LookAt(*m.graph, 0, m.curve);
  EXPECT_EQ(m.curve.peak, 2 * 160);
  EXPECT_EQ(m.curve.peak_node->result()->name(), "a");
  EXPECT_EQ(m.AliveAtPeak(), (std::vector<std::string>{"x", "a"}));
}

// A storage reaches from its first element to its last: gaps count, an expanded dimension does not.
TEST(MemoryCurveTest, StridesDecideTheSize) {
  TensorType type;
  type.sizes = {Dim(4), Dim(3)};
  type.strides = {Dim(8), Dim(1)};
  EXPECT_EQ(StorageBytes(type, {}), (3 * 8 + 2 * 1 + 1) * 4);
  type.strides = {Dim(0), Dim(1)};
  EXPECT_EQ(StorageBytes(type, {}), 3 * 4);
  type.sizes[0] = Dim(0);
  EXPECT_EQ(StorageBytes(type, {}), 0);
  type.sizes[0] = Dim(-4);
  EXPECT_EQ(StorageBytes(type, {}), 0);
}

TEST(MemoryCurveTest, GraphWithoutNodes) {
  Measured m("graph @g(%w: param \"w\" f32[2, 4]) {\n  return\n}");
  EXPECT_EQ(m.curve.peak, 32);
  EXPECT_EQ(m.curve.peak_node, nullptr);
  EXPECT_EQ(m.AliveAtPeak(), (std::vector<std::string>{"w"}));
}

// A file can say any size; the error names the tensor that has it.
TEST(MemoryCurveTest, TooLargeSizesAreErrors) {
  auto failure = [](const std::string& size) {
    auto graph = Parse("graph @g(%w: param \"w\" f32[" + size + "], %v: param \"v\" f32[" + size +
                       "]) {\n  return\n}");
    try {
      MeasureMemory(*graph);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kSizeOverflow);
      return error.message();
    }
    return std::string();
  };
  EXPECT_EQ(failure("1073741824"), "");
  EXPECT_NE(failure("4611686018427387904").find("%w"), std::string::npos);
  EXPECT_NE(failure("2000000000000000000"), "");  // fits alone, but not twice
}

// The graph of a very large model is measured in a moment. The bound is several times what it
// takes, and far below what anything quadratic would.
TEST(MemoryCurveTest, LinearInTheGraph) {
  constexpr int kNodes = 200'000;
  Graph graph("long");
  TensorType type = ContiguousType(DType::kFloat32, Device(), {Dim(2), Dim(4)}, graph.shapes());
  Value* value = graph.AddInput(InputRole::kInput, "x", type);
  const Operator* neg = FindOperator("aten::neg");
  std::vector<Value*> saved;
  for (int i = 0; i < kNodes; ++i) {
    bool backward = i >= kNodes / 2;
    Graph::NodeSpec spec;
    spec.op = neg;
    spec.operands = {value};
    if (backward) {
      spec.operands = {saved.back()};
      saved.pop_back();
    }
    spec.args = {OperandRef{0}};
    spec.meta.phase = backward ? Phase::kBackward : Phase::kForward;
    Graph::Typed typed;
    typed.results = {type};
    value = graph.InsertTyped(std::move(spec), std::move(typed))->result();
    if (!backward) saved.push_back(value);
  }
  auto start = std::chrono::steady_clock::now();
  MemoryCurve curve = MeasureMemory(graph);
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 1.0);
  RecordProperty("seconds", std::to_string(took.count()));
  EXPECT_EQ(curve.storages.size(), kNodes + 1U);
  // Half of the nodes are saved, and one is made from the last of them.
  EXPECT_EQ(curve.peak, 32 * (1 + kNodes / 2 + 1));
  EXPECT_EQ(curve.peak_position, kNodes / 2);
}

}  // namespace
}  // namespace gt::memory_curve_test
