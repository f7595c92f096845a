// Recording and replaying on a CPU, with device graphs that run their body again. What a GPU does with it is
// in recorded_program_gpu_test.cc and in the jobs of train/gpu_test.cc.
#include "gt/exec/recorded_program.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "gt/ir/text.h"
#include "gt/ir/verifier.h"

namespace gt::recorded_program_test {
namespace {

// As a device would: a recording runs nothing, so its results are garbage until the first replay, and
// replays write to the addresses that the recording has seen.
class FakeGraph : public DeviceGraph {
 public:
  explicit FakeGraph(int* replays) : replays_(replays) {}

  void Capture(const Body& body) override {
    body_ = body;
    left_ = body();
    for (at::Tensor& tensor : left_) {
      first_.push_back(tensor.clone());
      if (tensor.is_floating_point()) tensor.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }
  void Replay() override {
    // What the body reads is gone after the recording, on the host: the first replay has its values.
    const std::vector<at::Tensor> again = first_.empty() ? body_() : std::move(first_);
    first_.clear();
    ASSERT_EQ(again.size(), left_.size());
    for (size_t i = 0; i < again.size(); ++i) left_[i].copy_(again[i]);
    ++*replays_;
  }

 private:
  int* replays_;
  Body body_;
  std::vector<at::Tensor> left_, first_;
};

class FakeGraphs : public DeviceGraphs {
 public:
  explicit FakeGraphs(int* replays) : replays_(replays) {}
  std::unique_ptr<DeviceGraph> Make() override { return std::make_unique<FakeGraph>(replays_); }
  void Reserve(int64_t) override {}
  at::Tensor Empty(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                   const at::TensorOptions& options) override {
    return kept_.emplace_back(at::empty_strided(sizes, strides, options));
  }
  c10::Device device() const override { return c10::kCPU; }
  int64_t bytes() const override { return 7; }

 private:
  int* replays_;
  std::vector<at::Tensor> kept_;
};

struct Fixture {
  explicit Fixture(std::string_view text, std::vector<size_t> varying)
      : graph(Parse(text)),
        program(*graph),
        recorded(program,
                 FindRecordedSpans(*graph, {.device = DeviceKind::kCpu, .least_kernels = 1}),
                 std::move(varying), [this] { return std::make_unique<FakeGraphs>(&replays); }) {
    Verify(*graph);
  }

  void ExpectSame(const std::vector<at::Tensor>& inputs) {
    const std::vector<at::Tensor> expected = Program(*graph).Run(inputs);
    const std::vector<at::Tensor> actual = recorded.Run(inputs);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::equal(actual[i], expected[i])) << "output " << i;
    }
  }

  int replays = 0;
  std::unique_ptr<Graph> graph;
  Program program;
  RecordedProgram recorded;
};

// Counts are read in every run: sizes between the spans follow them.
constexpr std::string_view kCounts =
    R"(graph @step(%w: param "w" f32[8], %x: input "x" f32[s0], %n: input "n" i64[1]) {
    symbols { s0: input, hint 8, range [2, 64]; u0: data, hint 3, range [0, 8] }
    %y = aten::exp(%w) : f32[8]
    %v = aten::mul.Tensor(%y, %w) : f32[8]
    %m = aten::abs(%n) : i64[1]
    gt::read_ints(%m) binds [u0]
    %part = aten::slice.Tensor(%y, end = u0) : f32[u0]
    %a = aten::neg(%x) : f32[s0]
    %row = aten::unsqueeze(%part, dim = 0) : f32[1, u0]{u0, 1}
    %b = aten::exp(%a) : f32[s0]
    %e = aten::exp(%row) : f32[1, u0]
    %s = aten::sum(%e) : f32[]
    %t = aten::unsqueeze(%s, dim = 0) : f32[1]
    %c = aten::mul.Tensor(%b, %t) : f32[s0]
    %d = aten::add.Tensor(%c, %s) : f32[s0]
    return result "d" %d, result "s" %s, result "w" %v
  })";

std::vector<at::Tensor> CountInputs(const at::Tensor& w, int64_t count, int64_t length = 8) {
  return {w, at::randn({length}), at::full({1}, count, at::kLong)};
}

TEST(RecordedProgram, ReplaysFollowInputsAndCounts) {
  Fixture fixture(kCounts, {1, 2});
  at::Tensor w = at::randn({8});
  for (int64_t count : {3, 3, 0, 8, 5, 3}) {
    fixture.ExpectSame(CountInputs(w, count));
    w.add_(1);  // parameters change where they are
  }
  EXPECT_TRUE(fixture.recorded.recorded());
  EXPECT_EQ(fixture.replays, 6 * 3) << "three spans in each of six runs";
  EXPECT_EQ(fixture.recorded.bytes(), 7);
}

// Batches of another size, and parameters elsewhere, run instruction by instruction; what is recorded stays.
TEST(RecordedProgram, OtherInputsRunOrdinarily) {
  Fixture fixture(kCounts, {1, 2});
  const at::Tensor w = at::randn({8});
  fixture.ExpectSame(CountInputs(w, 3));
  fixture.ExpectSame(CountInputs(w, 3));
  EXPECT_EQ(fixture.replays, 6);
  fixture.ExpectSame(CountInputs(w, 4, /*length=*/5));
  fixture.ExpectSame(CountInputs(w.clone(), 4));
  EXPECT_EQ(fixture.replays, 6);
  fixture.ExpectSame(CountInputs(w, 7));
  EXPECT_EQ(fixture.replays, 9);
  // Not with the sizes of the run before last.
  EXPECT_TRUE(at::equal(fixture.program.Run(CountInputs(w, 7))[2], w.exp() * w));
}

// Strides, and views of what is at a fixed address.
TEST(RecordedProgram, FixedValuesKeepTheirLayout) {
  Fixture fixture(R"(graph @step(%x: input "x" f32[4, 3], %n: input "n" i64[1]) {
    symbols { u0: data, hint 2, range [0, 4] }
    gt::read_ints(%n) binds [u0]
    %part = aten::slice.Tensor(%x, end = u0) : f32[u0, 3]
    %z = aten::sum.dim_IntList(%part, dim = [0], keepdim = true) : f32[1, 3]
    %q = aten::t(%z) : f32[3, 1]{1, 3}
    %a = aten::exp(%q) : f32[3, 1]
    %b = aten::neg(%a) : f32[3, 1]
    %f = aten::slice.Tensor(%b, dim = 0, start = 1) : f32[2, 1] offset [1]
    return result "b" %b, result "f" %f
  })",
                  {0, 1});
  for (int64_t count : {1, 2, 4, 0}) {
    fixture.ExpectSame({at::randn({4, 3}), at::full({1}, count, at::kLong)});
  }
}

// A view of other elements in every run, of what the span itself makes and does not leave behind.
TEST(RecordedProgram, ViewsMayMove) {
  Fixture fixture(R"(graph @step(%x: input "x" f32[8], %n: input "n" i64[1]) {
    symbols { u0: data, hint 3, range [0, 4] }
    gt::read_ints(%n) binds [u0]
    %a = aten::neg(%x) : f32[8]
    %b = aten::exp(%a) : f32[8]
    %part = aten::slice.Tensor(%a, start = u0, end = u0 + 4) : f32[4] offset [u0]
    %row = aten::unsqueeze(%part, dim = 0) : f32[1, 4]
    %e = aten::exp(%b) : f32[8]
    %c = aten::neg(%row) : f32[1, 4]
    %d = aten::exp(%c) : f32[1, 4]
    return result "e" %e, result "d" %d
  })",
                  {0, 1});
  for (int64_t first : {1, 3, 0, 4}) {
    fixture.ExpectSame({at::randn({8}), at::full({1}, first, at::kLong)});
  }
  EXPECT_EQ(fixture.replays, 4 * 2);
}

// What cannot be recorded is named, and runs as if nothing had been tried.
class RefusingGraphs : public FakeGraphs {
 public:
  RefusingGraphs(int* replays, int span) : FakeGraphs(replays), replays_(replays), left_(span) {}
  std::unique_ptr<DeviceGraph> Make() override {
    class Refusing : public FakeGraph {
     public:
      using FakeGraph::FakeGraph;
      void Capture(const Body& body) override {
        body();
        TORCH_CHECK(false, "operation not permitted\nwhen stream is capturing");
      }
    };
    if (left_-- > 0) return FakeGraphs::Make();
    return std::make_unique<Refusing>(replays_);
  }

 private:
  int* replays_;
  int left_;
};

TEST(RecordedProgram, WhatCannotBeRecordedRunsOrdinarily) {
  for (int span : {0, 1, 2}) {
    int replays = 0;
    const auto graph = Parse(kCounts);
    Program program(*graph);
    RecordedProgram recorded(
        program, FindRecordedSpans(*graph, {.device = DeviceKind::kCpu, .least_kernels = 1}),
        {1, 2}, [&] { return std::make_unique<RefusingGraphs>(&replays, span); });
    const at::Tensor w = at::randn({8});
    for (int64_t count : {3, 5}) {
      const std::vector<at::Tensor> inputs = CountInputs(w, count);
      const std::vector<at::Tensor> expected = Program(*graph).Run(inputs);
      const std::vector<at::Tensor> actual = recorded.Run(inputs);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(actual[i], expected[i]));
    }
    EXPECT_FALSE(recorded.recorded());
    EXPECT_EQ(replays, span);
    EXPECT_NE(recorded.failure().find("cannot be recorded: operation not permitted"),
              std::string::npos)
        << recorded.failure();
    EXPECT_EQ(recorded.failure().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace gt::recorded_program_test
