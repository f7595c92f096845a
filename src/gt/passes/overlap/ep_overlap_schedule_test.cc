// The schedule as a pass: which graphs it touches, what it does with reads, and what it keeps to.
#include "gt/passes/overlap/ep_overlap_schedule.h"

#include <gtest/gtest.h>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/overlap/measure_peak.h"
#include "gt/passes/overlap/overlap_order.h"
#include "gt/passes/overlap/overlap_structural.h"
#include "gt/passes/overlap/overlap_test_util.h"
#include "gt/sim/live_memory.h"
#include "gt/sim/timeline.h"

namespace gt::ep_overlap_schedule_test {
namespace {

using testing::Chunks;
using testing::NamedCosts;
using testing::RandomTimedStep;
using testing::TimedStep;

constexpr EpOverlapOptions kGenerous = {.memory_headroom = 10};

int64_t Count(const PassRun& run, std::string_view counter) {
  for (const auto& [name, value] : run.counters) {
    if (name == counter) return value;
  }
  ADD_FAILURE() << "no counter " << counter;
  return -1;
}

// The step's own times.
CostModelFor CostsOf(TimedStep& step) {
  return [&step](const Graph& graph) {
    return std::make_unique<NamedCosts>(graph, step.times(), step.host_read);
  };
}

// The manager verifies the result and compares hashes with what the pass says it did.
PassRun RunManaged(Graph& graph, EpOverlapOptions options, PassContext& context) {
  PassList passes;
  passes.push_back(std::make_unique<EpOverlapSchedule>(options));
  PassManager manager(std::move(passes), {.write_reproducer = false});
  return manager.Run(graph, context).runs.at(0);
}
PassRun Schedule(TimedStep& step, EpOverlapOptions options = kGenerous, int64_t whole_peak = 0) {
  PassContext context({.costs = CostsOf(step)});
  if (whole_peak > 0) context.Note(MeasurePeak::kNote, whole_peak);
  return RunManaged(step.graph(), options, context);
}

// Attention A, dispatch D, experts E, combine C, shared expert S, result O.
constexpr std::string_view kBlock =
    "A@#=30: $; D@#=20 dispatch: A@#; d@# wait: D@#; E@#=30: d@#; C@#=20 combine: E@#; "
    "c@# wait: C@#; S@#=10: A@#; O@#=1: c@# S@#";

TimedStep Stack(int blocks, Device device = Device(), ChunkProducer by = ChunkProducer::kGraph,
                std::string_view block = kBlock) {
  TimedStep step(device);
  step.MadeBy(by);
  std::string given = "x";
  for (int b = 0; b < blocks; ++b) {
    const std::string name = std::to_string(b);
    step.Forward("layers." + name, Chunks(block, {0, 1}, name, given));
    given = "O" + name + "#";
  }
  step.Return("O" + std::to_string(blocks - 1) + "0");
  step.Return("O" + std::to_string(blocks - 1) + "1");
  return step;
}

// The times that the pass tells are those of the simulation.
TEST(EpOverlapSchedule, TellsPredictedTimes) {
  TimedStep step = Stack(3);
  auto costs = CostsOf(step);
  const double before = Simulate(step.graph(), *costs(step.graph())).step;
  PassRun run = Schedule(step);
  EXPECT_EQ(Count(run, "microseconds_before"), static_cast<int64_t>(before));
  EXPECT_EQ(Count(run, "microseconds_after"),
            static_cast<int64_t>(Simulate(step.graph(), *costs(step.graph())).step));
}

// By the rules about chunks alone: costs are not asked for.
TEST(EpOverlapSchedule, ModeStructuralKnowsNoCosts) {
  for (bool pair_first : {false, true}) {
    TimedStep step = Stack(2), other = Stack(2);
    EpOverlapOptions options = {.schedule = OverlapSchedule::kStructural, .pair_first = pair_first};
    auto no_costs = [](const Graph&) -> std::unique_ptr<CostModel> {
      ADD_FAILURE() << "costs were asked for";
      return nullptr;
    };
    PassContext context({.costs = no_costs});
    PassRun run = RunManaged(step.graph(), options, context);
    EXPECT_TRUE(run.changed);
    Dependencies ties(other.graph());
    std::vector<int32_t> order = StructuralOrder(other.graph(), ties, pair_first);
    EXPECT_EQ(step.Names(), other.Names(order, ties));
  }
}

// Neither ordered nor are their reads split.
TEST(EpOverlapSchedule, GraphsWithoutChunksAreLeftAlone) {
  for (OverlapSchedule mode : {OverlapSchedule::kCost, OverlapSchedule::kStructural}) {
    TimedStep step(Device{DeviceKind::kCuda, 0});
    step.Outside("a=10: x; r read: a; D=20 dispatch: a; b=10: x r; d wait: D; e=10: d b");
    EXPECT_FALSE(Schedule(step, {.schedule = mode}).changed);
    // Chunks that exchange nothing have nothing to hide.
    step.Forward("m", "f0=1: x; f1=1: x; R0=20 reduce: f0; s0 read: f1; g0=1: x");
    EXPECT_FALSE(Schedule(step, {.schedule = mode}).changed);
  }
}

constexpr std::string_view kReading =
    "A@#=30: $; r@# read: A@#; K@#=1: A@# r@#; D@#=20 dispatch: K@#; d@# wait: D@#; E@#=30: d@#; "
    "O@#=1: d@# E@#";

TEST(EpOverlapSchedule, OnAGpuReadsBeginAheadOfTime) {
  TimedStep step = Stack(1, Device{DeviceKind::kCuda, 0}, ChunkProducer::kGraph, kReading);
  PassRun run = Schedule(step);
  EXPECT_EQ(Count(run, "split_reads"), 2);
  // Copies begin as soon as the counts exist. Both are waited for, being short: a chunk's tokens
  // are worth more than an early start of E00.
  EXPECT_EQ(step.Names(),
            "A00 gt::offload r00 K00 D00 A01 gt::offload r01 K01 D01 d00 E00 O00 d01 E01 O01");
  const std::string text = Print(step.graph());
  EXPECT_NE(text.find("gt::offload(%A00) : i64[8] {module = \"layers.0\""), std::string::npos)
      << text;
  const Node* read = step.NodeOf("r00");
  const Node* copy = read->operand(0)->producer();
  EXPECT_EQ(copy->op().transfer, Transfer::kOffload);
  EXPECT_EQ(copy->operand(0), step.ValueOf("A00"));
  EXPECT_EQ(copy->meta(), read->meta());
  EXPECT_EQ(copy->result()->type().device.kind, DeviceKind::kCpu);
  // Of the other values, none moved to the host.
  EXPECT_EQ(step.ValueOf("A00")->type().device.kind, DeviceKind::kCuda);
}

// Reads are split even where the order stays, so that the change is told.
TEST(EpOverlapSchedule, SplittingReadsIsAChange) {
  TimedStep step(Device{DeviceKind::kCuda, 0});
  step.Forward("m", "A0=1: x; r0 read: A0; D0=0 dispatch: A0");
  PassRun run = Schedule(step);
  EXPECT_TRUE(run.changed);
  EXPECT_EQ(Count(run, "split_reads"), 1);
  EXPECT_EQ(step.Names(), "A0 gt::offload r0 D0");
  // A copy that exists already is used.
  run = Schedule(step);
  EXPECT_FALSE(run.changed);
  EXPECT_EQ(Count(run, "split_reads"), 0);
}

// With no headroom an order may take no byte more than the step took.
TEST(EpOverlapSchedule, WithoutHeadroomThePeakStays) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    auto step = RandomTimedStep(seed, 4, 2, 14, seed % 2 == 0);
    const int64_t before = PeakInUse(step->graph());
    changed += Schedule(*step, {.memory_headroom = 0}).changed ? 1 : 0;
    EXPECT_LE(PeakInUse(step->graph()), before) << seed;
  }
  EXPECT_GT(changed, 10);
}

TEST(EpOverlapSchedule, HeadroomIsAShareOfWhatTheStepAllocates) {
  TimedStep wide = Stack(2), narrow = Stack(2);
  const int64_t before = PeakInUse(wide.graph());
  const int64_t wanted = [] {
    TimedStep step = Stack(2);
    Schedule(step);
    return PeakInUse(step.graph());
  }();
  const double share = static_cast<double>(wanted - before) / static_cast<double>(before);
  Schedule(wide, {.memory_headroom = share + 1e-6});
  EXPECT_EQ(PeakInUse(wide.graph()), wanted);
  Schedule(narrow, {.memory_headroom = share - 1e-6});
  EXPECT_LT(PeakInUse(narrow.graph()), wanted);
}

// The step may need as much memory as it did before it was chunked.
TEST(EpOverlapSchedule, TheWholeStepsPeakIsAllowed) {
  TimedStep free = Stack(2);
  Schedule(free);
  const int64_t wanted = PeakInUse(free.graph());
  TimedStep bound = Stack(2), allowed = Stack(2), less = Stack(2);
  Schedule(bound, {.memory_headroom = 0});
  EXPECT_LT(PeakInUse(bound.graph()), wanted);
  Schedule(allowed, {.memory_headroom = 0}, wanted);
  EXPECT_EQ(allowed.Names(), free.Names());
  // A step that needs more than the whole one did, cut as it is, keeps what it has.
  Schedule(less, {.memory_headroom = 0}, 1);
  EXPECT_EQ(less.Names(), bound.Names());
}

// A budget in bytes holds whatever the headroom is.
TEST(EpOverlapSchedule, KeepsToItsBudget) {
  TimedStep free = Stack(3);
  Schedule(free, {});
  const int64_t wanted = PeakInUse(free.graph());
  for (int64_t less = 0; less < 6; ++less) {
    TimedStep bound = Stack(3);
    const int64_t given = PeakInUse(bound.graph());
    PassRun run = Schedule(bound, {.memory_budget = wanted - 64 * less});
    EXPECT_LE(PeakInUse(bound.graph()), std::max(given, wanted - 64 * less));
    EXPECT_LE(Count(run, "microseconds_after"), Count(run, "microseconds_before"));
    // What more memory would bring is told.
    if (Count(run, "bytes_missing") == 0) continue;
    EXPECT_LT(Count(run, "microseconds_unlimited"), Count(run, "microseconds_after"));
    TimedStep more = Stack(3);
    PassRun with =
        Schedule(more, {.memory_budget = wanted - 64 * less + Count(run, "bytes_missing")});
    EXPECT_LE(Count(with, "microseconds_after"), Count(run, "microseconds_unlimited"));
  }
  TimedStep both = Stack(3);
  Schedule(both, {.memory_headroom = 10, .memory_budget = wanted - 64});
  EXPECT_LE(PeakInUse(both.graph()), wanted - 64);
}

// What is allocated all the time counts against the budget.
TEST(EpOverlapSchedule, TheBudgetIsForEverything) {
  TimedStep free = Stack(3), bound = Stack(3), beside = Stack(3);
  Schedule(free, {});
  const int64_t less = PeakInUse(free.graph()) - 64, constant = 1 << 20;
  Schedule(bound, {.memory_budget = less});
  const auto constant_bytes = [&](const Graph&) { return constant; };
  PassContext context({.costs = CostsOf(beside), .constant_bytes = constant_bytes});
  RunManaged(beside.graph(), {.memory_budget = less + constant}, context);
  EXPECT_EQ(beside.Names(), bound.Names());
  // The job's budget counts where the pass has none of its own.
  TimedStep by_job = Stack(3);
  PassContext job({.costs = CostsOf(by_job),
                   .memory_budget = [&] { return less + constant; },
                   .constant_bytes = constant_bytes});
  RunManaged(by_job.graph(), {}, job);
  EXPECT_EQ(by_job.Names(), bound.Names());
  EXPECT_LE(PeakInUse(beside.graph()), less);
}

// Near the limit overlap is given up where memory is short, not everywhere: with a little less than
// it wants, a deep stack loses a part of what the order gains, not all of it.
TEST(EpOverlapSchedule, MemoryIsNotAllOrNothing) {
  constexpr int kBlocks = 8;
  TimedStep free = Stack(kBlocks);
  PassRun with_all = Schedule(free, {});
  const double before = static_cast<double>(Count(with_all, "microseconds_before"));
  const double gained = before - static_cast<double>(Count(with_all, "microseconds_after"));
  const int64_t wanted = PeakInUse(free.graph());
  TimedStep bound = Stack(kBlocks);
  ASSERT_LT(PeakInUse(bound.graph()), wanted);
  PassRun run = Schedule(bound, {.memory_budget = wanted - 1});
  EXPECT_GT(before - static_cast<double>(Count(run, "microseconds_after")), 0.5 * gained);
}

// No candidate is predicted to be faster than what is taken.
TEST(EpOverlapSchedule, IsNeverSlowerThanItsParts) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    auto step = RandomTimedStep(seed, 5, 2, 12, seed % 2 == 0);
    const NamedCosts costs = step->Costs();
    Dependencies ties(step->graph());
    OverlapOrder orders(step->graph(), ties, costs);
    double fastest = orders.AsItIs().microseconds;
    for (int32_t window : {1, 2, 3, 4, 6, 8}) {
      fastest = std::min(fastest, orders.WithinWindow(window, int64_t{1} << 40).microseconds);
    }
    for (bool pairs : {false, true}) {
      try {
        fastest = std::min(fastest,
                           orders.Judge(StructuralOrder(step->graph(), ties, pairs)).microseconds);
      } catch (const Error&) {  // random steps need not keep to its rules
      }
    }
    PassRun run = Schedule(*step, {});
    // Windows are those of the pass, so that one of the others may be luckier by a little.
    EXPECT_LE(Count(run, "microseconds_after"), 1.05 * fastest + 1) << seed;
    EXPECT_LE(Count(run, "microseconds_after"), Count(run, "microseconds_before"));
  }
}

// One rank decides, the others apply what it says and look at no costs.
TEST(EpOverlapSchedule, RanksApplyWhatTheFirstOneDecided) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    auto step = RandomTimedStep(seed, 4, 2, 12, true);
    auto other = step->graph().Clone();
    std::string published;
    JobFacts first, second;
    first.costs = CostsOf(*step);
    first.decide_for_all = [&](auto, const auto& decide) { return published = decide(); };
    second.costs = [](const Graph&) -> std::unique_ptr<CostModel> {
      ADD_FAILURE() << "the second rank plans for itself";
      return nullptr;
    };
    second.decide_for_all = [&](auto, const auto&) { return published; };
    PassContext deciding(first), applying(second);
    EpOverlapSchedule().Run(step->graph(), deciding);
    EpOverlapSchedule().Run(*other, applying);
    EXPECT_EQ(step->graph().Hash(), other->Hash()) << seed;
  }
}

// The same object or another one, on equal graphs: equal orders. On its own output the order is
// legal too, and no slower.
TEST(EpOverlapSchedule, IsRepeatable) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    auto step = RandomTimedStep(seed, 4, 2, 12, true);
    PassContext context({.costs = CostsOf(*step)});
    auto first = step->graph().Clone(), second = step->graph().Clone(),
         third = step->graph().Clone();
    EpOverlapSchedule pass(kGenerous);
    pass.Run(*first, context);
    pass.Run(*second, context);
    EpOverlapSchedule(kGenerous).Run(*third, context);
    EXPECT_EQ(first->Hash(), second->Hash());
    EXPECT_EQ(first->Hash(), third->Hash());
    PassRun again = RunManaged(*first, kGenerous, context);
    EXPECT_LE(Count(again, "microseconds_after"), Count(again, "microseconds_before"));
  }
}

// On GPUs with their split reads too; the manager verifies each.
TEST(EpOverlapSchedule, RandomStepsStayLegalAndGetNoSlower) {
  int64_t split = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
      auto step = RandomTimedStep(seed, 6, 3, 10, true, Device{kind, 0});
      PassRun run = Schedule(*step);
      split += Count(run, "split_reads");
      EXPECT_LE(Count(run, "microseconds_after"), Count(run, "microseconds_before"));
    }
  }
  EXPECT_GT(split, 20);
}

// Outside of a job: costs of GPUs of today.
TEST(EpOverlapSchedule, NeedsNoCostModel) {
  TimedStep step = Stack(2, Device{DeviceKind::kCuda, 0});
  PassContext context;
  EXPECT_TRUE(RunManaged(step.graph(), kGenerous, context).changed);
}

TEST(EpOverlapSchedule, SpecIsReadBack) {
  EpOverlapSchedule pass({.schedule = OverlapSchedule::kStructural,
                          .memory_headroom = 0.5,
                          .memory_budget = 7,
                          .pair_first = true});
  EXPECT_EQ(pass.Spec(),
            "ep_overlap_schedule{schedule=structural,memory_headroom=0.5,memory_budget=7,"
            "pair_first=true}");
  EXPECT_EQ(MakePass(pass.Spec())->Spec(), pass.Spec());
  EXPECT_EQ(EpOverlapSchedule().Spec(), "ep_overlap_schedule");
}

}  // namespace
}  // namespace gt::ep_overlap_schedule_test
