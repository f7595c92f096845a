// Recordings on a GPU: replays have the bits of ordinary runs, whatever is between them.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gt/exec/recorded_program.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/torch_bridge/device.h"
#include "gt/torch_bridge/generator.h"

namespace gt::recorded_program_gpu_test {
namespace {

class RecordedOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CudaUsable()) GTEST_SKIP() << "there is no GPU";
    device_ = ChooseDevice(DeviceChoice::kCuda);
  }

  static RecordedSpans SpansOf(const Graph& graph) {
    return FindRecordedSpans(graph, {.least_kernels = 1});
  }
  RecordedProgram::GraphMaker Maker() const {
    return [device = device_] { return MakeDeviceGraphs(device); };
  }
  at::TensorOptions Options(at::ScalarType dtype = at::kFloat) const {
    return at::TensorOptions(device_).dtype(dtype);
  }

  static void ExpectSame(const std::vector<at::Tensor>& actual,
                         const std::vector<at::Tensor>& expected, const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(actual[i], expected[i])) << what << ", output " << i;
    }
  }

  c10::Device device_ = c10::kCPU;
};

// Large enough that blocks are reused between spans, with sizes that the host reads in between.
constexpr std::string_view kCounts =
    R"(graph @step(%w: param "w" f32[512, 512] @cuda:0, %x: input "x" f32[512, 512] @cuda:0, %n: input "n" i64[1] @cuda:0) {
    symbols { u0: data, hint 3, range [0, 512]; u1: data, hint 3, range [0, 512] }
    %a = aten::mm(%x, %w) : f32[512, 512] @cuda:0
    %b = aten::silu(%a) : f32[512, 512] @cuda:0
    %c = aten::mm(%b, %w) : f32[512, 512] @cuda:0
    %m = aten::abs(%n) : i64[1] @cuda:0
    gt::read_ints(%m) binds [u0]
    %part = aten::slice.Tensor(%c, end = u0) : f32[u0, 512] @cuda:0
    %e = aten::mm(%part, %w) : f32[u0, 512] @cuda:0
    %s = aten::sum.dim_IntList(%e, dim = [0]) : f32[512] @cuda:0
    %d = aten::add.Tensor(%b, %s) : f32[512, 512] @cuda:0
    %f = aten::mm(%d, %w) : f32[512, 512] @cuda:0
    %g = aten::tanh(%f) : f32[512, 512] @cuda:0
    %away = gt::offload(%g) : f32[512, 512]
    %k = aten::mm(%g, %x) : f32[512, 512] @cuda:0
    %there = gt::wait_transfer(%away, %g) : f32[512, 512]
    %q = aten::sigmoid(%k) : f32[512, 512] @cuda:0
    %r = aten::mm(%q, %k) : f32[512, 512] @cuda:0
    %in = gt::reload(%there, device = "cuda:0") : f32[512, 512] @cuda:0
    %o = aten::neg(%r) : f32[512, 512] @cuda:0
    %back = gt::wait_transfer(%in, %there) : f32[512, 512] @cuda:0
    gt::read_ints(%m) binds [u1]
    %tail = aten::slice.Tensor(%o, end = u1) : f32[u1, 512] @cuda:0
    %z = aten::sum.dim_IntList(%tail, dim = [0]) : f32[512] @cuda:0
    %y = aten::add.Tensor(%back, %z) : f32[512, 512] @cuda:0
    %v = aten::mm(%y, %c) : f32[512, 512] @cuda:0
    return result "v" %v, result "w" %o, result "z" %z
  })";

TEST_F(RecordedOnGpu, ReplaysHaveTheBitsOfOrdinaryRuns_gpu) {
  const auto graph = Parse(kCounts);
  Verify(*graph);
  Program ordinary(*graph), program(*graph);
  RecordedProgram recorded(program, SpansOf(*graph), {1, 2}, Maker());
  const at::Tensor w = at::randn({512, 512}, Options()) / 20;
  for (int64_t count : {3, 100, 0, 512, 17, 3, 511}) {
    const std::vector<at::Tensor> inputs = {w, at::randn({512, 512}, Options()),
                                            at::full({1}, count, Options(at::kLong))};
    const std::vector<at::Tensor> expected = ordinary.Run(inputs);
    ExpectSame(recorded.Run(inputs), expected, fmt::format("{} rows", count));
    EXPECT_EQ(recorded.failure(), "");
    w.mul_(1.01);
  }
  EXPECT_TRUE(recorded.recorded());
  EXPECT_GT(recorded.bytes(), 0);
  // All intermediate results together would be over 20 MiB: blocks are shared.
  EXPECT_LT(recorded.bytes(), int64_t{64} << 20);
}

// Numbers drawn in recordings, between them, and again from a state that was kept, from the device's
// generator and from one of a thread's own.
TEST_F(RecordedOnGpu, ReplaysDrawWhatOrdinaryRunsDraw_gpu) {
  const auto graph = Parse(R"(graph @step(%x: input "x" f32[1000] @cuda:0) {
    %s = gt::generator_state(device = "cuda:0") : u8[16]
    %a = aten::bernoulli.p(%x, p = 0.3) : f32[1000] @cuda:0
    %b = aten::add.Tensor(%a, %x) : f32[1000] @cuda:0
    %c = aten::bernoulli.p(%b, p = 0.2) : f32[1000] @cuda:0
    %now = gt::set_generator_state(%s, device = "cuda:0") : u8[16]
    %d = aten::bernoulli.p(%x, p = 0.3) : f32[1000] @cuda:0
    %then = gt::set_generator_state(%now, device = "cuda:0") : u8[16]
    %e = aten::sub.Tensor(%a, %d) : f32[1000] @cuda:0
    %f = aten::bernoulli.p(%c, p = 0.5) : f32[1000] @cuda:0
    %g = aten::add.Tensor(%f, %b) : f32[1000] @cuda:0
    %h = aten::add.Tensor(%g, %c) : f32[1000] @cuda:0
    return result "h" %h, result "e" %e
  })");
  Verify(*graph);
  for (const bool own : {false, true}) {
    std::optional<GeneratorScope> scope;
    if (own) scope.emplace(device_);
    Program ordinary(*graph), program(*graph);
    RecordedProgram recorded(program, SpansOf(*graph), {0}, Maker());
    std::vector<std::vector<at::Tensor>> runs[2];
    for (const bool replayed : {false, true}) {
      SeedGenerator(device_, 7);
      for (int i = 0; i < 4; ++i) {
        const std::vector<at::Tensor> inputs = {at::full({1000}, i + 1, Options())};
        std::vector<at::Tensor> outputs = replayed ? recorded.Run(inputs) : ordinary.Run(inputs);
        for (at::Tensor& output : outputs) output = output.clone();
        EXPECT_EQ(outputs[1].abs().max().item<double>(), 0) << "the same numbers again";
        runs[replayed].push_back(std::move(outputs));
      }
    }
    EXPECT_EQ(recorded.failure(), "");
    for (size_t i = 0; i < runs[0].size(); ++i) {
      ExpectSame(runs[1][i], runs[0][i], fmt::format("run {}, own {}", i, own));
    }
  }
}

// Beginning a recording resets the generator's offset on the device, where an earlier replay may not have
// come to its draws yet. (Ranks that shared a GPU drew other numbers in the step that recorded.)
TEST_F(RecordedOnGpu, ARecordingWaitsForDrawsThatAreUnderWay_gpu) {
  const at::Tensor x = at::full({1000}, 0.5, Options()), slow = at::ones({6144, 6144}, Options());
  const auto draw = [&] {
    at::Tensor product = slow;
    for (int i = 0; i < 4; ++i) product = at::mm(product, slow);
    return at::bernoulli(x + 0 * product[0].slice(0, 0, 1000), CurrentGenerator());
  };
  for (const bool own : {false, true}) {
    std::optional<GeneratorScope> scope;
    if (own) scope.emplace(device_);
    std::vector<at::Tensor> expected, actual;
    SeedGenerator(device_, 7);
    for (int i = 0; i < 4; ++i) expected.push_back(draw());
    SeedGenerator(device_, 7);
    actual.push_back(draw());
    const std::unique_ptr<DeviceGraphs> graphs = MakeDeviceGraphs(device_);
    ASSERT_NE(graphs, nullptr);
    std::vector<std::unique_ptr<DeviceGraph>> recordings;
    while (actual.size() < expected.size()) {
      recordings.push_back(graphs->Make());
      recordings.back()->Capture([&] { return std::vector{actual.emplace_back(draw())}; });
      recordings.back()->Replay();
    }
    ExpectSame(actual, expected, fmt::format("own {}", own));
    actual.clear();
  }
}

// An operator that waits for the device although nobody has said so.
TEST_F(RecordedOnGpu, WhatRefusesIsNamedAndRunsOrdinarily_gpu) {
  const auto graph = Parse(kCounts);
  RecordedSpans spans = SpansOf(*graph);
  ASSERT_GT(spans.spans.size(), 3u);
  spans.spans[0].end = spans.spans[1].end;  // the host reads in the middle of it
  spans.spans.erase(spans.spans.begin() + 1);
  std::erase_if(spans.fixed, [&](const Value* value) { return value->name() == "s"; });
  Program ordinary(*graph), program(*graph);
  RecordedProgram recorded(program, spans, {1, 2}, Maker());
  const at::Tensor w = at::randn({512, 512}, Options()) / 20;
  for (int64_t count : {3, 100, 0}) {
    const std::vector<at::Tensor> inputs = {w, at::randn({512, 512}, Options()),
                                            at::full({1}, count, Options(at::kLong))};
    const std::vector<at::Tensor> expected = ordinary.Run(inputs);
    ExpectSame(recorded.Run(inputs), expected, fmt::format("{} rows", count));
  }
  EXPECT_FALSE(recorded.recorded());
  EXPECT_NE(recorded.failure().find("gt::read_ints"), std::string::npos) << recorded.failure();
  // The device and the allocator are as they were: another recording goes well.
  Program again(*graph);
  RecordedProgram good(again, SpansOf(*graph), {1, 2}, Maker());
  for (int64_t count : {3, 100}) {
    const std::vector<at::Tensor> inputs = {w, at::randn({512, 512}, Options()),
                                            at::full({1}, count, Options(at::kLong))};
    ExpectSame(good.Run(inputs), ordinary.Run(inputs), "after a failure");
  }
  EXPECT_EQ(good.failure(), "");
}

// Taken in one piece, and used before more is taken. What cannot be had is not missed.
TEST_F(RecordedOnGpu, MemoryIsReservedInOnePiece_gpu) {
  constexpr int64_t kBytes = int64_t{100} << 20;
  const c10::Device gpu(c10::kCUDA, 0);
  const auto options = at::TensorOptions(gpu).dtype(at::kByte);
  at::empty({1}, options);  // libtorch's allocator begins with the first tensor
  const auto graphs = MakeDeviceGraphs(gpu);
  ASSERT_NE(graphs, nullptr);
  const int64_t peak = MemoryOf(gpu).peak;
  OutsidePeak(gpu, [&] { graphs->Reserve(kBytes); });
  EXPECT_EQ(graphs->bytes(), kBytes);
  EXPECT_EQ(MemoryOf(gpu).peak, peak);
  const at::Tensor first = graphs->Empty({kBytes / 2}, {1}, options);
  const at::Tensor second = graphs->Empty({kBytes / 4}, {1}, options);
  EXPECT_EQ(graphs->bytes(), kBytes);
  graphs->Reserve(int64_t{1} << 50);
  EXPECT_EQ(graphs->bytes(), kBytes);
}

}  // namespace
}  // namespace gt::recorded_program_gpu_test
