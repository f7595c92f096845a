#include "gt/sim/timeline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bitset>
#include <random>
#include <string>
#include <vector>

#include "gt/sim/queues.h"
#include "gt/sim/timeline_test_util.h"

namespace gt::timeline_test {
namespace {

using Times = std::vector<TimeInterval>;

// Sorted, joined where they overlap or touch; what is inside of another or empty adds nothing.
TEST(TimeIntervalTest, UnionJoins) {
  EXPECT_EQ(Union({{5, 7}, {0, 2}, {2, 3}, {6, 9}, {6, 7}, {20, 20}, {12, 11}}),
            (Times{{0, 3}, {5, 9}}));
  EXPECT_EQ(Union({}), Times{});
}

TEST(TimeIntervalTest, CommonLengthCountsWhatIsInBoth) {
  Times a = {{0, 10}, {20, 30}}, b = {{5, 22}, {24, 25}, {29, 40}};
  EXPECT_DOUBLE_EQ(Length(a), 20);
  EXPECT_DOUBLE_EQ(CommonLength(a, b), 5 + 2 + 1 + 1);
  EXPECT_DOUBLE_EQ(CommonLength(b, a), CommonLength(a, b));
  EXPECT_DOUBLE_EQ(CommonLength(a, Times{{10, 20}}), 0);
  EXPECT_DOUBLE_EQ(CommonLength(a, a), Length(a));
}

// Against a line of 64 cells that are covered or not.
TEST(TimeIntervalTest, AgreesWithCells) {
  std::mt19937 random(7);
  using Cells = std::bitset<64>;
  for (int round = 0; round < 300; ++round) {
    Cells cells[2];
    Times joined[2];
    for (int side = 0; side < 2; ++side) {
      Times intervals;
      for (unsigned i = random() % 8; i > 0; --i) {
        unsigned start = random() % 60, end = start + random() % 5;
        intervals.push_back({double(start), double(end)});
        for (unsigned cell = start; cell < end; ++cell) cells[side].set(cell);
      }
      joined[side] = Union(intervals);
      EXPECT_EQ(Length(joined[side]), double(cells[side].count()));
      for (size_t i = 1; i < joined[side].size(); ++i) {
        EXPECT_LT(joined[side][i - 1].end, joined[side][i].start);
      }
    }
    EXPECT_EQ(CommonLength(joined[0], joined[1]), double((cells[0] & cells[1]).count()));
  }
}

// An exchange with `%b` between launch and wait.
std::string Overlapped(const std::string& between = "%b = aten::neg(%a) : f32[4]") {
  return "  %a = aten::neg(%x) : f32[4]\n"
         "  %c = _c10d_functional::all_reduce(%a, reduce_op = \"sum\", group_name = \"ep\") : "
         "f32[4]\n  " +
         between +
         "\n  %w = _c10d_functional::wait_tensor(%c) : f32[4]\n"
         "  %d = aten::neg(%w) : f32[4]\n";
}

// Compute that takes longer than the collective hides all of it.
TEST(TimelineTest, HiddenCollective) {
  Simulated s(Overlapped(), Launching(0), {{"b", 30}, {"c", 20}});
  EXPECT_EQ(s.Time("a"), (TimeInterval{0, 10}));
  EXPECT_EQ(s.Time("c"), (TimeInterval{10, 30}));
  EXPECT_EQ(s.Time("b"), (TimeInterval{10, 40}));
  EXPECT_EQ(s.Time("d"), (TimeInterval{40, 50}));
  EXPECT_EQ(s.Stalls(), Times{});
  EXPECT_EQ(s.timeline.step, 50);
  EXPECT_EQ(s.timeline.lanes, (std::vector<std::string>{"compute", "ep"}));
  EXPECT_EQ(s.Lane("a"), "compute");
  EXPECT_EQ(s.Lane("c"), "ep");
}

// Compute that is too short: the wait holds up the stream for the rest.
TEST(TimelineTest, HalfHiddenCollective) {
  Simulated s(Overlapped(), Launching(0), {{"b", 12}, {"c", 20}});
  EXPECT_EQ(s.Stalls(), (Times{{22, 30}}));
  EXPECT_EQ(s.timeline.stalls[0].node->result()->name(), "w");
  EXPECT_EQ(s.Time("d"), (TimeInterval{30, 40}));
  EXPECT_EQ(s.timeline.step, 40);
}

// Nothing between launch and wait: all of it is waited for. A view between changes nothing.
TEST(TimelineTest, ExposedCollective) {
  Simulated s(Overlapped("%v = aten::view(%c, size = [2, 2]) : f32[2, 2]"), Launching(0),
              {{"c", 20}});
  EXPECT_EQ(s.Stalls(), (Times{{10, 30}}));
  EXPECT_EQ(s.timeline.step, 40);
  EXPECT_EQ(s.timeline.spans.size(), 3U);
}

// A collective that nobody waits for still belongs to the step.
TEST(TimelineTest, StepEndsWithTheLastCollective) {
  Simulated s(R"(
  %c = _c10d_functional::all_reduce(%x, reduce_op = "sum", group_name = "ep") : f32[4]
  %a = aten::neg(%x) : f32[4])",
              Launching(0), {{"c", 100}});
  EXPECT_EQ(s.timeline.step, 100);
}

std::string TwoCollectives(const std::string& second_group) {
  return fmt::format(R"(
  %a = aten::neg(%x) : f32[4]
  %c = _c10d_functional::all_reduce(%a, reduce_op = "sum", group_name = "ep") : f32[4]
  %e = _c10d_functional::all_reduce(%a, reduce_op = "sum", group_name = "{}") : f32[4]
  %f = _c10d_functional::wait_tensor(%e) : f32[4]
  %w = _c10d_functional::wait_tensor(%c) : f32[4])",
                     second_group);
}

// Groups do not wait for each other.
TEST(TimelineTest, TwoQueuesAtOnce) {
  Simulated s(TwoCollectives("dp"), Launching(0), {{"c", 20}, {"e", 15}});
  EXPECT_EQ(s.Time("c"), (TimeInterval{10, 30}));
  EXPECT_EQ(s.Time("e"), (TimeInterval{10, 25}));
  EXPECT_EQ(s.Stalls(), (Times{{10, 25}, {25, 30}}));
}

// Collectives of one group run in the order of their launches, also where the later is waited for
// first.
TEST(TimelineTest, OneQueueKeepsOrder) {
  Simulated s(TwoCollectives("ep"), Launching(0), {{"c", 20}, {"e", 15}});
  EXPECT_EQ(s.Time("c"), (TimeInterval{10, 30}));
  EXPECT_EQ(s.Time("e"), (TimeInterval{30, 45}));
  EXPECT_EQ(s.Span("e").launched, 10);
  EXPECT_EQ(s.Stalls(), (Times{{10, 45}}));
}

// The host launches one kernel after the other; short kernels wait for it. Views and waits are not
// launched.
TEST(TimelineTest, HostBound) {
  Simulated s(R"(
  %a = aten::neg(%x) : f32[4]
  %v = aten::view(%a, size = [2, 2]) : f32[2, 2]
  %b = aten::neg(%v) : f32[2, 2]
  %c = aten::neg(%b) : f32[2, 2])",
              Launching(5), {{"a", 2}, {"b", 9}, {"c", 1}});
  EXPECT_EQ(s.Time("a"), (TimeInterval{5, 7}));
  EXPECT_EQ(s.Time("b"), (TimeInterval{10, 19}));
  EXPECT_EQ(s.Time("c"), (TimeInterval{19, 20}));  // launched at 15
  EXPECT_EQ(s.timeline.step, 20);
  EXPECT_EQ(s.Stalls(), Times{});
}

// A collective is launched by the host as well, and starts no earlier than the stream reaches it.
TEST(TimelineTest, CollectiveIsLaunched) {
  Simulated s(Overlapped(), Launching(4), {{"a", 1}, {"b", 1}, {"c", 20}});
  EXPECT_EQ(s.Time("a"), (TimeInterval{4, 5}));
  EXPECT_EQ(s.Time("c"), (TimeInterval{8, 28}));
  EXPECT_EQ(s.Time("b"), (TimeInterval{12, 13}));
  EXPECT_EQ(s.Stalls(), (Times{{13, 28}}));
  EXPECT_EQ(s.Time("d"), (TimeInterval{28, 38}));  // launched at 16
}

// The host knows the number 5 us after the kernel that makes it. The stream has been idle since
// that kernel's end, and stays so until the host has launched the next.
TEST(TimelineTest, ReadStalls) {
  Simulated s(R"(
  %a = aten::neg(%n) : i64[4]
  gt::read_ints(%a) binds [u0, u1, u2, u3]
  %b = aten::neg(%x) : f32[4])",
              Launching(1));
  EXPECT_EQ(s.Time("a"), (TimeInterval{1, 11}));
  EXPECT_EQ(s.Stalls(), (Times{{11, 16}}));
  EXPECT_EQ(s.Time("b"), (TimeInterval{17, 27}));
}

// A read without a copy of its own queues behind all work that was launched before, also that which
// it does not need; meanwhile the stream is busy, and then it runs dry.
TEST(TimelineTest, ReadQueuesBehindWork) {
  Simulated s(R"(
  %a = aten::neg(%n) : i64[4]
  %b = aten::neg(%x) : f32[4]
  gt::read_ints(%a) binds [u0, u1, u2, u3]
  %c = aten::neg(%x) : f32[4])",
              Launching(1), {{"b", 50}});
  EXPECT_EQ(s.Stalls(), (Times{{61, 66}}));
  EXPECT_EQ(s.Time("b"), (TimeInterval{11, 61}));
  EXPECT_EQ(s.Time("c"), (TimeInterval{67, 77}));
}

// Numbers copied to the host are available when the copy is done; the copy runs in parallel with
// compute.
TEST(TimelineTest, ReadOfOffloadedNumbers) {
  Simulated s(R"(
  %a = aten::neg(%n) : i64[4]
  %o = gt::offload(%a) : i64[4]
  %b = aten::neg(%x) : f32[4]
  gt::read_ints(%o) binds [u0, u1, u2, u3]
  %c = aten::neg(%x) : f32[4])",
              Launching(1), {{"o", 4}, {"b", 2}});
  EXPECT_EQ(s.Lane("o"), "count copies");
  EXPECT_EQ(s.Time("o"), (TimeInterval{11, 15}));
  EXPECT_EQ(s.Time("b"), (TimeInterval{11, 13}));
  EXPECT_EQ(s.Stalls(), (Times{{13, 15}}));
  EXPECT_EQ(s.Time("c"), (TimeInterval{16, 26}));
}

// Where the host computes itself, reading costs nothing but the wait for a copy.
TEST(TimelineTest, HostThatComputesReadsAtOnce) {
  DeviceSpeed cpu = Launching(0);
  cpu.host_read_us = 0;
  Simulated s(R"(
  %a = aten::neg(%n) : i64[4]
  gt::read_ints(%a) binds [u0, u1, u2, u3]
  %o = gt::offload(%a) : i64[4]
  gt::read_ints(%o) binds [u4, u5, u6, u7]
  %b = aten::neg(%x) : f32[4])",
              cpu, {{"o", 4}});
  EXPECT_EQ(s.Stalls(), (Times{{10, 14}}));
  EXPECT_EQ(s.Time("b"), (TimeInterval{14, 24}));
}

// Both directions of copies are queues of their own, but nothing comes back before it has gone.
TEST(TimelineTest, CopiesThereAndBack) {
  Simulated s(R"(
  %a = aten::neg(%x) : f32[4]
  %o = gt::offload(%a) : f32[4]
  %p = gt::offload(%x) : f32[4]
  %r = gt::reload(%o, device = "cpu") : f32[4]
  %b = aten::neg(%x) : f32[4]
  %w = gt::wait_transfer(%r, %o) : f32[4]
  %c = aten::neg(%w) : f32[4])",
              Launching(0), {{"o", 20}, {"p", 30}, {"r", 7}});
  EXPECT_EQ(s.Time("o"), (TimeInterval{10, 30}));
  EXPECT_EQ(s.Time("p"), (TimeInterval{30, 60}));
  EXPECT_EQ(s.Time("r"), (TimeInterval{30, 37}));
  EXPECT_EQ(s.Span("r").launched, 10);
  EXPECT_EQ(s.Lane("r"), "host copies back");
  EXPECT_EQ(s.Stalls(), (Times{{20, 37}}));
  EXPECT_EQ(s.Time("c"), (TimeInterval{37, 47}));
  EXPECT_EQ(s.timeline.step, 60);
}

// What a wait is for is found through views.
TEST(TimelineTest, AwaitedCollective) {
  Simulated s(Overlapped("%v = aten::view(%c, size = [2, 2]) : f32[2, 2]\n"
                         "  %u = _c10d_functional::wait_tensor(%v) : f32[2, 2]"),
              Launching(0));
  const Node* collective = s.graph->FindValue("c")->producer();
  EXPECT_EQ(AwaitedBy(*s.graph->FindValue("w")->producer()), collective);
  EXPECT_EQ(AwaitedBy(*s.graph->FindValue("u")->producer()), collective);
  EXPECT_EQ(AwaitedBy(*s.graph->FindValue("d")->producer()), nullptr);
  EXPECT_EQ(QueueOf(*collective), "ep");
  EXPECT_EQ(QueueOf(*s.graph->FindValue("w")->producer()), "");
}

}  // namespace
}  // namespace gt::timeline_test
