// Orders in which communication hides behind compute: small steps computed by hand.
#include "gt/passes/overlap/overlap_order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gt/ir/text.h"
#include "gt/passes/overlap/overlap_order_test_util.h"
#include "gt/sim/queues.h"

namespace gt::overlap_order_test {
namespace {

using testing::Chunks;
using testing::TimedStep;

size_t PositionOf(const std::string& names, const std::string& name) {
  const std::vector<std::string> list = Split(names, ' ');
  auto found = std::find(list.begin(), list.end(), name);
  EXPECT_NE(found, list.end()) << name;
  return static_cast<size_t>(found - list.begin());
}

// Each of these is before the next one.
void ExpectInTurn(const std::string& names, const std::vector<std::string>& few) {
  for (size_t i = 0; i + 1 < few.size(); ++i) {
    EXPECT_LT(PositionOf(names, few[i]), PositionOf(names, few[i + 1]))
        << few[i] << " does not come before " << few[i + 1] << " in " << names;
  }
}

// Attention A, exchange of counts N and its wait n, what is made of counts K, dispatch D and d, experts
// E, combine C and c, shared expert S, result O.
constexpr std::string_view kBlock =
    "A@#=30: $; N@#=2 count: A@#; n@# wait: N@#; K@#=1: A@# n@#; D@#=20 dispatch: K@#; "
    "d@# wait: D@#; E@#=30: d@#; C@#=20 combine: E@#; c@# wait: C@#; S@#=10: A@#; O@#=1: c@# S@#";

TimedStep Stack(int blocks, std::string_view block = kBlock, const std::vector<int>& ids = {0, 1}) {
  TimedStep step;
  std::string given = "x";
  for (int b = 0; b < blocks; ++b) {
    const std::string name = std::to_string(b);
    step.Forward("layers." + name, Chunks(block, ids, name, given));
    given = "O" + name + "#";
  }
  return step;
}

// One chunk after the other, nothing beside anything: 114 a chunk.
TEST(OverlapOrder, AsItIsNothingOverlaps) {
  TimedStep step = Stack(1);
  Planned planned(step);
  OverlapOrder::Result result = planned.orders.AsItIs();
  EXPECT_EQ(result.microseconds, 2 * 114);
  EXPECT_EQ(step.Names(result.order, planned.ties), step.Names());
  EXPECT_EQ(planned.orders.exchanges_per_region(), 6);
}

//   compute  A0 0-30, K0 32-33, A1 33-63, E0 63-93, K1 93-94, S0 94-104, S1 104-114, O0 114-115,
//            E1 133-163, O1 183-184
//   tokens   D0 33-53, C0 93-113, D1 113-133, C1 163-183
//   counts   N0 30-32, N1 63-65
// Nothing is begun at 30: the counts are available soon, and the first tokens wait for them.
TEST(OverlapOrder, ABlockOfTwoChunks) {
  TimedStep step = Stack(1);
  Planned planned(step);
  EXPECT_EQ(planned.Order(3),
            "A00 N00 n00 K00 D00 A01 N01 d00 E00 C00 n01 K01 D01 S00 S01 c00 O00 d01 E01 C01 c01 "
            "O01");
  EXPECT_EQ(planned.microseconds, 184);
}

// With its chunks kept, attention of the second block fills exchanges of the first: A10 runs while D01
// is on its way (113-133), A11 while D10 is (195-215).
//   compute  ... O00 114-115, A10 115-145, E01 145-175, K10 175-176, S10 176-186, O01 195-196,
//            A11 196-226, E10 226-256, K11 256-257, S11 257-267, O10 276-277, E11 296-326, O11 346-347
//   tokens   ... D01 113-133, C01 175-195, D10 195-215, C10 256-276, D11 276-296, C11 326-346
TEST(OverlapOrder, AStackIsAPipeline) {
  TimedStep step = Stack(2);
  Planned planned(step);
  const std::string order = planned.Order(6);
  EXPECT_EQ(order,
            "A00 N00 n00 K00 D00 A01 N01 d00 E00 C00 n01 K01 D01 S00 S01 c00 O00 A10 N10 d01 E01 "
            "C01 n10 K10 D10 S10 c01 O01 A11 N11 d10 E10 C10 n11 K11 D11 S11 c10 O10 d11 E11 C11 "
            "c11 O11");
  EXPECT_EQ(planned.microseconds, 347);
  EXPECT_EQ(planned.orders.AsItIs().microseconds, 4 * 114);
}

// A block more takes 144 of compute, 72 a chunk, and twice 9 in which S is done and c not yet there. In
// the first one S01 holds up O00 for another 1.
TEST(OverlapOrder, EveryBlockOfAStackAddsTheSame) {
  std::vector<double> times;
  for (int blocks = 1; blocks <= 6; ++blocks) {
    TimedStep step = Stack(blocks);
    Planned planned(step);
    planned.Order(6);
    times.push_back(planned.microseconds);
  }
  EXPECT_EQ(times[1] - times[0], 163);
  for (size_t i = 2; i < times.size(); ++i) EXPECT_EQ(times[i] - times[i - 1], 162);
}

// While one of three chunks exchanges, two have something to do: the compute stream is idle only
// at the end, for the last combine, and for the last dispatch, beside which O20 and O21 run.
TEST(OverlapOrder, ThreeChunksHideMore) {
  constexpr std::string_view kEven =
      "A@#=30: $; D@#=20 dispatch: A@#; d@# wait: D@#; E@#=30: d@#; C@#=20 combine: E@#; "
      "c@# wait: C@#; O@#=1: c@#";
  TimedStep step = Stack(3, kEven, {0, 1, 2});
  Planned planned(step);
  planned.Order(planned.orders.exchanges_per_region());
  EXPECT_EQ(planned.microseconds, 9 * 61 + 20 + (20 - 2));
}

// Nodes of no chunk run when they are needed; what nothing needs runs within about a region.
TEST(OverlapOrder, TheRestOfTheStepGoesAlong) {
  TimedStep step;
  step.Outside("a=5: x");
  step.Forward("layers.0", Chunks(kBlock, {0, 1}, "0", "a"));
  step.Outside("b=5: O00; c=5: O01; l=5: b c");
  Planned planned(step);
  EXPECT_EQ(planned.Order(6),
            "a A00 N00 n00 K00 D00 A01 N01 d00 E00 C00 n01 K01 D01 S00 S01 c00 O00 b d01 E01 C01 "
            "c01 O01 c l");
}

// Backward of a block: gradient of the combine C, of the experts' input g and weights W, of the
// dispatch D, of attention's input H and weights V. Experts are computed a second time, R.
constexpr std::string_view kBackward =
    "C@#=20 combine: $; c@# wait: C@#; R@#=15 again: x; g@#=15: c@# R@#; W@#=15: c@# R@#; "
    "D@#=20 dispatch: g@#; d@# wait: D@#; H@#=15: d@#; V@#=15: d@#";

TimedStep BackwardStack(int blocks, std::string_view block = kBackward) {
  TimedStep step;
  std::string given = "x";
  for (int b = blocks - 1; b >= 0; --b) {
    const std::string name = std::to_string(b);
    step.Backward("layers." + name, Chunks(block, {1, 0}, name, given));
    given = "H" + name + "#";
  }
  return step;
}

//   compute  R1 0-15, R0 15-30, g1 30-45, g0 45-60, W1 60-75, H1 75-90, V1 90-105, W0 105-120, H0, V0
//   tokens   C1 0-20, C0 20-40, D1 45-65, D0 65-85
// What is computed a second time fills the first exchanges, weights' gradients the others.
TEST(OverlapOrder, GradientsOfWeightsFillGaps) {
  TimedStep step = BackwardStack(1);
  Planned planned(step);
  EXPECT_EQ(planned.orders.exchanges_per_region(), 4);
  EXPECT_EQ(planned.Order(4),
            "C01 C00 R01 R00 c01 g01 D01 c00 g00 D00 W01 d01 H01 V01 W00 d00 H00 V00");
  EXPECT_EQ(planned.microseconds, 10 * 15);
}

// With exchanges that take no time nothing has to be filled. Gradients of weights must still be made
// within a region's exchanges, else what they are made of would live on.
TEST(OverlapOrder, GradientsOfWeightsAreNotPutOff) {
  TimedStep step = BackwardStack(4);
  for (auto& [name, time] : step.times()) {
    if (name[0] == 'C' || name[0] == 'D') time = 0;
  }
  Planned planned(step);
  const std::string order = planned.Order(100);
  for (int block = 3; block >= 2; --block) {
    const std::string b = std::to_string(block), below = std::to_string(block - 2);
    for (const char* chunk : {"0", "1"}) {
      ExpectInTurn(order, {"W" + b + chunk, "g" + below + "0"});
      ExpectInTurn(order, {"V" + b + chunk, "H" + below + "0"});
    }
  }
}

// A recomputed value is filler like any other: it runs while the first exchange is in flight, also
// when it is after the exchange's wait in the graph.
TEST(OverlapOrder, RecomputedNodesFillGaps) {
  TimedStep step;
  step.Backward("layers.0",
                "C0=20 combine: x; c0 wait: C0; g0=5: c0; R0=15 again: x; h0=5: g0 R0; "
                "D0=5 dispatch: h0");
  Planned planned(step);
  EXPECT_EQ(planned.Order(2), "C0 R0 c0 g0 h0 D0");
  EXPECT_EQ(planned.microseconds, 35);
}

// Collectives of one group run one after the other, those of two side by side.
TEST(OverlapOrder, AQueueForEachGroup) {
  TimedStep one, two;
  one.Forward("m", "D0=20 dispatch: x; D1=20 dispatch: x; d0 wait: D0; d1 wait: D1; e0=1: d0 d1");
  two.Forward("m", "D0=20 dispatch: x; D1=20 count: x; d0 wait: D0; d1 wait: D1; e0=1: d0 d1");
  EXPECT_EQ(Planned(one).orders.AsItIs().microseconds, 41);
  EXPECT_EQ(Planned(two).orders.AsItIs().microseconds, 21);
}

// Copies to the host, copies back and groups have a queue each.
TEST(OverlapOrder, AQueueForEachDirectionOfCopies) {
  TimedStep step;
  step.Forward("m",
               "o0=20 copy: x; O0=20 copy: x; D0=20 dispatch: x; a0 arrive: o0 x; f0=20 fetch: a0; "
               "b0 arrive: f0 a0; c0 arrive: O0 x; d0 wait: D0");
  Planned planned(step);
  EXPECT_EQ(planned.orders.AsItIs().microseconds, 40);
}

// Every collective ends within the step, also one that nobody waits for.
TEST(OverlapOrder, TheStepEndsWithTheLastCollective) {
  TimedStep step;
  step.Forward("m", "A0=5: x; D0=20 dispatch: A0; B0=5: x");
  EXPECT_EQ(Planned(step).orders.AsItIs().microseconds, 25);
}

// The host waits for the copy, or looks for itself.
TEST(OverlapOrder, ReadsWaitForTheirCopy) {
  TimedStep step;
  step.host_read = 7;
  step.Forward("m", "A0=5: x; o0=3 copy: A0; r0 read: o0; B0=1: x r0; C0=1: x; D0=1 dispatch: x");
  Planned planned(step);
  EXPECT_EQ(planned.orders.AsItIs().microseconds, 11);
  EXPECT_EQ(planned.Order(1), "D0 A0 o0 C0 r0 B0");
  TimedStep direct;
  direct.host_read = 7;
  direct.Forward("m", "A0=5: x; r0 read: A0; B0=1: x r0; D0=1 dispatch: x");
  EXPECT_EQ(Planned(direct).orders.AsItIs().microseconds, 14);
}

TEST(OverlapOrder, WaitsSeeThroughViews) {
  TimedStep step;
  step.host_read = 7;
  step.Forward("m", "D0=20 dispatch: x; v0 view: D0; d0 wait: v0; E0=1: d0; A0=5: x");
  EXPECT_EQ(Planned(step).orders.AsItIs().microseconds, 26);
  EXPECT_EQ(Planned(step).Order(1), "D0 v0 A0 d0 E0");
  TimedStep reads;
  reads.host_read = 7;
  reads.Forward("m", "o0=20 copy: x; v0 view: o0; a0 arrive: v0 x; r0 read: a0; D0 dispatch: x");
  EXPECT_EQ(Planned(reads).orders.AsItIs().microseconds, 21);
}

// A gather of parameters depends on nothing, but keeps its place: after all of the exchanges that
// precede it in the graph. What prepares it moves with it.
TEST(OverlapOrder, GathersKeepTheirPlace) {
  TimedStep step;
  step.Forward("layers.0", "A0=10: x; D0=20 dispatch: A0; d0 wait: D0; E0=10: d0");
  step.Outside("p=4: w0; G=10 gather: p; q wait: G");
  step.Forward("layers.0", "A1=10: x; D1=20 dispatch: A1; d1 wait: D1; E1=10: d1");
  step.Forward("layers.1", "F0=10: E0 q; H0=20 dispatch: F0");
  Planned planned(step);
  // %p and %G could run immediately. They are after one exchange in the graph, and run when all
  // that is before the exchange has run.
  EXPECT_EQ(planned.Order(100), "A0 D0 p G A1 D1 q d0 E0 F0 H0 d1 E1");
}

// Not so gathers of what the step computes, and what is made of gathered parameters.
TEST(OverlapOrder, OtherGathersGoAtOnce) {
  TimedStep step;
  step.Forward("layers.0",
               "D0=20 dispatch: x; h0 part: x; J0=10 join: h0; j0 wait: J0; "
               "B0=5: j0; d0 wait: D0; E0=10: d0; C0=5 dispatch: E0; c0 wait: C0");
  step.Outside("k part: c0; L=1 join: k; l wait: L");
  Planned planned(step);
  EXPECT_EQ(planned.Order(0), "D0 h0 J0 j0 B0 d0 E0 C0 c0 k L l");
  TimedStep early;
  early.Forward("layers.0", "D0=20 dispatch: x; d0 wait: D0; E0=10: d0; C0=5 dispatch: E0");
  early.Outside("h part: x; J=10 join: h; j wait: J; b=5: j");
  // The window lets it in: it is launched before everything that it does not need.
  EXPECT_EQ(Planned(early).Order(2), "D0 h J j b d0 E0 C0");
}

// Copies back from the host too: what they bring back has been there for long.
TEST(OverlapOrder, CopiesBackKeepTheirPlace) {
  TimedStep step;
  step.Outside("o=1 copy: x; a arrive: o x");
  step.Forward("layers.0",
               "A0=10: x; D0=20 dispatch: A0; d0 wait: D0; E0=10: d0; C0=5 combine: E0");
  step.Outside("f=5 fetch: a; b arrive: f a");
  step.Forward("layers.0", "A1=10: b; D1=20 dispatch: A1");
  Planned planned(step);
  EXPECT_EQ(planned.Order(100), "o A0 D0 a d0 E0 C0 f b A1 D1");
}

// D0 is in flight, and much waits for it. L1 would take far too long; S1 fits in, though no
// exchange needs it; the time left is short compared to L1, and nothing is begun.
TEST(OverlapOrder, ShortWorkFillsShortGaps) {
  TimedStep step;
  step.Forward("m",
               "A0=1: x; D0=20 dispatch: A0; d0 wait: D0; E0=1: d0; C0=5 combine: E0; "
               "L1=100: x; G1=5 dispatch: L1; S1=10: x");
  Planned planned(step);
  EXPECT_EQ(planned.Order(3), "A0 D0 S1 d0 E0 C0 L1 G1");
  EXPECT_EQ(planned.microseconds, 21 + 1 + 100 + 5);
  // Work that is not much longer than the gap is begun all the same.
  step.times()["L1"] = 30;
  EXPECT_EQ(Planned(step).Order(3), "A0 D0 L1 G1 d0 E0 C0 S1");
}

// Two ranks whose shares of a parameter and its gradient differ in length must find one order.
TEST(OverlapOrder, OwnPartsDoNotChangeTheOrder) {
  auto step = [](double cast, double unpack, double sum) {
    TimedStep made;
    made.Outside("p=" + std::to_string(cast) + ": w0; G=10 gather: p; q wait: G");
    made.Backward(
        "layers.0",
        Chunks("A#=10: q; D#=20 dispatch: A#; d# wait: D#; E#=30: d#; W#=15: A#", {1, 0}));
    made.Outside("s=1: W1 W0; R=10 scatter: s; r wait: R; u=" + std::to_string(unpack) +
                 ": r; Y=5 reduce: u; y wait: Y; z=" + std::to_string(sum) + ": y");
    made.Backward("layers.1",
                  Chunks("F#=10: E#; H#=20 dispatch: F#; h# wait: H#; I#=30: h#", {1, 0}));
    made.Return("z", OutputRole::kGradient);
    return made;
  };
  TimedStep even = step(3, 3, 3), uneven = step(40, 60, 90), empty = step(0, 0, 0);
  Planned planned(even), other(uneven), none(empty);
  for (int window : {0, 1, 2, 4, 8}) {
    const std::string order = planned.Order(window);
    EXPECT_EQ(order, other.Order(window));
    EXPECT_EQ(order, none.Order(window));
    EXPECT_EQ(planned.microseconds, other.microseconds);
  }
  EXPECT_EQ(planned.orders.AsItIs().microseconds, other.orders.AsItIs().microseconds);
}

// Nodes between the reduce-scatters of activations are not rank-local.
TEST(OverlapOrder, ScattersOfActivationsAreNoOwnParts) {
  TimedStep step;
  step.Forward("layers.0",
               "A0=10: x; R0=5 share: A0; r0 wait: R0; E0=30: r0; J0=5 join: E0; "
               "j0 wait: J0; D0=20 dispatch: j0; d0 wait: D0; F0=30: d0");
  step.Backward("layers.0",
                "g0=10: F0; S0=5 share: g0; s0 wait: S0; h0=10: s0; K0=5 join: h0; "
                "k0 wait: K0; W0=15: k0");
  step.Outside("T=5 scatter: W0; t wait: T; u=25: t");
  step.Return("u", OutputRole::kGradient);
  Planned planned(step);
  // All but %u, in turn.
  EXPECT_EQ(planned.orders.AsItIs().microseconds,
            10 + 5 + 30 + 5 + 20 + 30 + 10 + 5 + 10 + 5 + 15 + 5);
}

// Regions are counted apart, and so are their directions; what is in no body does not count.
TEST(OverlapOrder, CountsExchangesOfRegions) {
  TimedStep step;
  step.Outside("a=1 dispatch: x");
  EXPECT_EQ(Planned(step).orders.exchanges_per_region(), 0);
  step.Forward("layers.0", "A0=1 dispatch: x; B0=1 count: x; A1=1 dispatch: x");
  step.Forward("layers.1", "C0=1 dispatch: x; C1=1 dispatch: x; R0=1 reduce: x; G0=1 join: w0");
  step.Backward("layers.0", "D0=1 dispatch: x; E0=1 dispatch: x");
  EXPECT_EQ(Planned(step).orders.exchanges_per_region(), 3);
}

// Memory decides before time does: with none to spare the graph's own order is kept.
TEST(OverlapOrder, WithoutMemoryTheOrderStays) {
  TimedStep step = Stack(2);
  Planned planned(step);
  EXPECT_EQ(planned.Order(6, -1), step.Names());
  EXPECT_EQ(planned.microseconds, 4 * 114);
}

// Chunks side by side need more memory than one after the other: with all that they want they take
// 347, and more with less.
TEST(OverlapOrder, LessMemoryTakesMoreTime) {
  TimedStep step = Stack(2);
  Planned planned(step);
  const OverlapOrder::Result plenty = planned.orders.WithinWindow(6, kPlenty);
  EXPECT_EQ(planned.orders.WithinWindow(6, plenty.peak).order, plenty.order);
  std::vector<double> times;
  std::vector<int64_t> peaks;
  for (int64_t less = 0; less <= 4; ++less) {
    OverlapOrder::Result result = planned.orders.WithinWindow(6, plenty.peak - 64 * less);
    times.push_back(result.microseconds);
    peaks.push_back(result.peak / 64);
  }
  EXPECT_EQ(times[0], 347);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_GT(times.back(), 400);
  // What is on its way cannot be freed: one value more than is allowed, at the most.
  for (size_t i = 0; i < peaks.size(); ++i) EXPECT_LE(peaks[i], 8 - static_cast<int64_t>(i));
}

}  // namespace
}  // namespace gt::overlap_order_test
