// Time as it passes on a device whose collectives get in each other's way. Without contention the
// clock is what sim/timeline_test.cc looks at.
#include "gt/sim/step_clock.h"

#include <gtest/gtest.h>

#include <map>

#include "gt/ir/text.h"
#include "gt/sim/timeline_test_util.h"

namespace gt::step_clock_test {
namespace {

// Times by the names of results; collectives transfer all the time over the network and take a
// quarter of the multiprocessors.
class SharedCosts : public FixedCosts {
 public:
  SharedCosts(std::map<std::string, double> costs, double taken, double bound_by_arithmetic = 1)
      : FixedCosts(Launching(0.001), std::move(costs)),
        taken_(taken),
        bound_(bound_by_arithmetic) {}
  NodeCost CostOf(const Node& node) const override {
    const double us = Microseconds(node);
    if (node.op().collective == Collective::kNone) return {.us = us, .arithmetic_us = bound_ * us};
    return {
        .us = us, .link = {.transfer_us = us, .resource = LinkResource::kNetwork}, .taken = taken_};
  }
  bool contention() const override { return true; }

 private:
  double taken_, bound_;
};

std::unique_ptr<Graph> Step(const std::string& nodes) {
  return Parse("graph @step(%x: input \"x\" f32[4]) {\n" + nodes + "  return\n}\n");
}
std::string Reduce(const std::string& name, const std::string& of, const std::string& group) {
  return "  %" + name + " = _c10d_functional::all_reduce(%" + of +
         ", reduce_op = \"sum\", group_name = \"" + group + "\") : f32[4]\n";
}
std::string Wait(const std::string& name, const std::string& of) {
  return "  %" + name + " = _c10d_functional::wait_tensor(%" + of + ") : f32[4]\n";
}
std::string Kernel(const std::string& name, const std::string& of) {
  return "  %" + name + " = aten::neg(%" + of + ") : f32[4]\n";
}

double TimeOf(const std::string& nodes, const CostModel& costs) {
  auto graph = Step(nodes);
  return Simulate(*graph, costs).step;
}

// Two groups at the same time share the network: each takes as long as both one after the other. In
// one group they queue, which takes as long in the end.
TEST(StepClock, CollectivesShareTheNetwork) {
  const SharedCosts costs({{"a", 100}, {"b", 100}}, 0);
  const std::string both = Reduce("a", "x", "one") + Reduce("b", "x", "two");
  EXPECT_NEAR(TimeOf(both + Wait("c", "a") + Wait("d", "b"), costs), 200, 0.1);
  const std::string queued = Reduce("a", "x", "one") + Reduce("b", "x", "one");
  EXPECT_NEAR(TimeOf(queued + Wait("c", "a") + Wait("d", "b"), costs), 200, 0.1);
  auto graph = Step(queued + Wait("c", "a") + Kernel("k", "c") + Wait("d", "b"));
  StepClock clock(*graph, costs);
  for (int32_t i = 0; i < clock.count(); ++i) clock.Run(i);
  clock.Finish();
  EXPECT_NEAR(clock.end(0), 100, 0.1);
  EXPECT_NEAR(clock.start(1), 100, 0.1);
}

// A kernel of 90 beside a collective of 60 that takes a quarter of the device: all beside it the kernel
// would take 90 / 0.75 and the loss of emptier waves, 127.2. The 60 do 60 / 127.2 of it, and what is left
// runs at full speed.
TEST(StepClock, CollectivesTakeMultiprocessors) {
  const std::string step = Reduce("a", "x", "one") + Kernel("k", "x") + Wait("c", "a");
  EXPECT_NEAR(TimeOf(step, SharedCosts({{"a", 60}, {"k", 90}}, 0.25)), 60 + (1 - 60 / 127.2) * 90,
              0.1);
  EXPECT_NEAR(TimeOf(step, SharedCosts({{"a", 60}, {"k", 90}}, 0)), 90, 0.1);
  // A kernel that waits for memory hardly notices: 5 % for the time beside the collective.
  EXPECT_NEAR(TimeOf(step, SharedCosts({{"a", 60}, {"k", 90}}, 0.25, 0.5)), 60 + 90 - 60 / 1.05,
              0.1);
  // One that ends before the collective is slower all the time.
  EXPECT_NEAR(TimeOf(step, SharedCosts({{"a", 500}, {"k", 90}}, 0.25)), 500, 0.1);
  auto graph = Step(step);
  StepClock clock(*graph, SharedCosts({{"a", 500}, {"k", 90}}, 0.25));
  for (int32_t i = 0; i < clock.count(); ++i) clock.Run(i);
  EXPECT_NEAR(clock.end(1) - clock.start(1), 127.2, 0.1);
}

// Any legal order may be run, repeatedly.
TEST(StepClock, StartsAnew) {
  auto graph = Step(Kernel("k", "x") + Reduce("a", "k", "one") + Kernel("l", "x") + Wait("c", "a") +
                    Kernel("m", "c"));
  StepClock clock(*graph, SharedCosts({{"a", 30}, {"k", 10}, {"l", 20}, {"m", 10}}, 0));
  auto time = [&](const std::vector<int32_t>& order) {
    clock.Restart();
    for (int32_t node : order) clock.Run(node);
    return clock.Finish();
  };
  EXPECT_NEAR(time({0, 1, 2, 3, 4}), 50, 0.1);
  EXPECT_NEAR(time({2, 0, 1, 3, 4}), 70, 0.1);
  EXPECT_NEAR(time({0, 1, 3, 4, 2}), 70, 0.1);
  EXPECT_NEAR(time({0, 1, 2, 3, 4}), 50, 0.1);
}

// What is under way is known to end, and when.
TEST(StepClock, LooksAhead) {
  auto graph = Step(Reduce("a", "x", "one") + Reduce("b", "x", "one") + Wait("c", "b"));
  StepClock clock(*graph, SharedCosts({{"a", 30}, {"b", 50}}, 0));
  clock.Run(0);
  clock.Run(1);
  EXPECT_NEAR(clock.NextEnd(), 30, 0.1);
  EXPECT_NEAR(clock.EndOf(0), 30, 0.1);
  EXPECT_NEAR(clock.EndOf(1), 80, 0.1);
  EXPECT_FALSE(clock.IsDone(0));
  clock.AdvanceTo(40);
  EXPECT_TRUE(clock.IsDone(0));
  EXPECT_FALSE(clock.IsDone(1));
  EXPECT_NEAR(clock.EndOf(1), 80, 0.1);
  clock.Run(2);
  EXPECT_NEAR(clock.now(), 80, 0.1);
}

}  // namespace
}  // namespace gt::step_clock_test
