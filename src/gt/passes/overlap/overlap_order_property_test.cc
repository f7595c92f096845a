// Orders in which communication hides behind compute: what holds for every step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "gt/passes/overlap/overlap_order_test_util.h"
#include "gt/sim/memory_curve.h"
#include "gt/sim/queues.h"
#include "gt/sim/timeline.h"

namespace gt::overlap_order_test {
namespace {

using testing::Chunks;
using testing::NamedCosts;
using testing::RandomTimedStep;
using testing::TimedStep;

struct Shape4 {
  int regions, chunks, nodes;
  bool parameters;
};
constexpr Shape4 kShapes[] = {
    {1, 2, 6, false}, {2, 2, 10, false}, {4, 2, 14, false}, {4, 3, 10, false},
    {6, 2, 10, true}, {4, 4, 8, true},   {2, 1, 12, true},
};

template <typename Visit>
void ForRandomSteps(int seeds, Visit&& visit) {
  for (const Shape4& shape : kShapes) {
    for (int seed = 0; seed < seeds; ++seed) {
      auto step = RandomTimedStep(static_cast<uint64_t>(seed), shape.regions, shape.chunks,
                                  shape.nodes, shape.parameters);
      SCOPED_TRACE(fmt::format("seed {}, {} regions of {} chunks of {} nodes", seed, shape.regions,
                               shape.chunks, shape.nodes));
      visit(*step, shape);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// By what a window is counted in.
std::vector<int32_t> ExchangesBefore(const Dependencies& ties) {
  std::vector<int32_t> before;
  int32_t count = 0;
  for (int32_t i = 0; i < ties.count(); ++i) {
    before.push_back(count);
    const Node& node = *ties.node(i);
    if (node.op().collective == Collective::kAllToAll && node.meta().chunk != nullptr) ++count;
  }
  return before;
}

// Every node once, after what it needs, whatever the window and the memory.
TEST(OverlapOrderProperty, OrdersAreLegal) {
  ForRandomSteps(12, [](TimedStep& step, const Shape4&) {
    Planned planned(step);
    const int64_t peak = planned.orders.AsItIs().peak;
    for (int32_t window : {0, 1, 3, 8, 1000}) {
      for (int64_t budget : {int64_t{0}, peak, peak + 128, kPlenty}) {
        std::vector<int32_t> order = planned.orders.WithinWindow(window, budget).order;
        ASSERT_EQ(std::set<int32_t>(order.begin(), order.end()).size(),
                  static_cast<size_t>(planned.ties.count()));
        auto copy = step.graph().Clone();
        Dependencies ties(*copy);
        ApplyOrder(*copy, ties, order);
        Verify(*copy);
      }
    }
  });
}

// Nothing runs before what is more than a window before it in the graph; with memory to spare or not.
TEST(OverlapOrderProperty, OrdersStayWithinTheirWindow) {
  ForRandomSteps(12, [](TimedStep& step, const Shape4&) {
    Planned planned(step);
    const std::vector<int32_t> before = ExchangesBefore(planned.ties);
    for (int32_t window : {0, 1, 2, 5, 20}) {
      for (int64_t budget : {planned.orders.AsItIs().peak, kPlenty}) {
        int32_t furthest = 0;
        for (int32_t number : planned.orders.WithinWindow(window, budget).order) {
          const int32_t own = before[static_cast<size_t>(number)];
          ASSERT_LE(furthest - own, window) << step.NameOf(planned.ties.node(number));
          furthest = std::max(furthest, own);
        }
      }
    }
  });
}

// Gathers of parameters run after everything that precedes their preceding exchanges in the graph.
TEST(OverlapOrderProperty, GathersAreNotEarly) {
  ForRandomSteps(12, [](TimedStep& step, const Shape4& shape) {
    if (!shape.parameters) return;
    Planned planned(step);
    const std::vector<int32_t> before = ExchangesBefore(planned.ties);
    const std::vector<int32_t> order = planned.orders.WithinWindow(1000, kPlenty).order;
    std::vector<int32_t> left(order.size() + 1);
    for (int32_t each : before) ++left[static_cast<size_t>(each)];
    for (int32_t number : order) {
      const auto own = static_cast<size_t>(before[static_cast<size_t>(number)]);
      if (planned.ties.node(number)->op().collective == Collective::kAllGather) {
        for (size_t i = 0; i < own; ++i) ASSERT_EQ(left[i], 0);
      }
      --left[own];
    }
  });
}

// The time is what the simulation of a step says, with a host that takes no time; it is between
// that of the busiest stream or queue and that of everything in turn.
TEST(OverlapOrderProperty, TimesAreThoseOfTheSimulation) {
  ForRandomSteps(12, [](TimedStep& step, const Shape4& shape) {
    if (shape.parameters) return;  // an order ignores rank-local nodes, but they do take time
    step.host_read = 0;
    Planned planned(step);
    std::map<std::string, double> busy;
    double all = 0;
    for (const Node* node : step.graph().nodes()) {
      const double time = planned.costs.Microseconds(*node);
      busy[std::string(QueueOf(*node))] += time;
      all += time;
    }
    double busiest = 0;
    for (const auto& [queue, time] : busy) busiest = std::max(busiest, time);
    EXPECT_EQ(planned.orders.AsItIs().microseconds, Simulate(step.graph(), planned.costs).step);
    for (int32_t window : {0, 2, 8, 1000}) {
      OverlapOrder::Result result = planned.orders.WithinWindow(window, kPlenty);
      EXPECT_GE(result.microseconds, busiest);
      EXPECT_LE(result.microseconds, all);
      auto copy = step.graph().Clone();
      Dependencies ties(*copy);
      ApplyOrder(*copy, ties, result.order);
      NamedCosts costs(*copy, step.times());
      EXPECT_EQ(result.microseconds, Simulate(*copy, costs).step);
    }
  });
}

// The peak is what is measured once the graph is in that order.
TEST(OverlapOrderProperty, PeaksAreThoseOfTheGraph) {
  ForRandomSteps(6, [](TimedStep& step, const Shape4&) {
    Planned planned(step);
    const int64_t inputs = LiveMemory(step.graph()).input_bytes();
    EXPECT_EQ(planned.orders.AsItIs().peak, PeakInUse(step.graph()));
    EXPECT_LE(planned.orders.AsItIs().peak + inputs, MeasureMemory(step.graph()).peak);
    for (int32_t window : {1, 1000}) {
      OverlapOrder::Result result = planned.orders.WithinWindow(window, kPlenty);
      auto copy = step.graph().Clone();
      Dependencies ties(*copy);
      ApplyOrder(*copy, ties, result.order);
      EXPECT_EQ(result.peak, PeakInUse(*copy));
      EXPECT_LE(result.peak + inputs, MeasureMemory(*copy).peak);
    }
  });
}

// Asking again, or in another order of questions, gives the same.
TEST(OverlapOrderProperty, AnswersAreRepeatable) {
  ForRandomSteps(4, [](TimedStep& step, const Shape4&) {
    Planned planned(step), other(step);
    OverlapOrder::Result first = planned.orders.WithinWindow(3, kPlenty);
    planned.orders.WithinWindow(1000, 0);
    planned.orders.AsItIs();
    for (OverlapOrder* orders : {&planned.orders, &other.orders}) {
      OverlapOrder::Result again = orders->WithinWindow(3, kPlenty);
      EXPECT_EQ(again.order, first.order);
      EXPECT_EQ(again.microseconds, first.microseconds);
      EXPECT_EQ(again.peak, first.peak);
    }
  });
}

// Times of rank-local nodes (casts, users of a reduce-scatter) do not change the order.
TEST(OverlapOrderProperty, OwnPartsDoNotChangeTheOrder) {
  ForRandomSteps(8, [](TimedStep& step, const Shape4& shape) {
    if (!shape.parameters) return;
    Planned planned(step);
    std::vector<int32_t> order = planned.orders.WithinWindow(4, kPlenty).order;
    for (auto& [name, time] : step.times()) {
      if (name[0] == 'p' || name[0] == 'q') time = 100 - 2 * time;
    }
    Planned other(step);
    EXPECT_EQ(other.orders.WithinWindow(4, kPlenty).order, order);
  });
}

// The shortest time of all orders, found by trying them. Waits are right before what needs them,
// which is never too early.
class ShortestTime {
 public:
  ShortestTime(const Dependencies& ties, const CostModel& costs) : ties_(ties) {
    for (int32_t i = 0; i < ties.count(); ++i) {
      costs_.push_back(costs.Microseconds(*ties.node(i)));
      queues_.push_back(QueueOf(*ties.node(i)));
    }
    done_.assign(costs_.size(), kNotDone);
  }
  double Find() {
    best_ = std::numeric_limits<double>::infinity();
    Try(0, {}, 0);
    return best_;
  }

 private:
  static constexpr double kNotDone = -1;
  using Queues = std::map<std::string_view, double>;

  bool IsWait(int32_t number) const {
    return ties_.node(number)->op().collective == Collective::kWait;
  }
  // When all that the node needs is done, waits looked through; kNotDone: not yet.
  double Ready(int32_t number) const {
    double ready = 0;
    for (int32_t needed : ties_.NeededBy(number)) {
      const double done = IsWait(needed) ? Ready(needed) : done_[static_cast<size_t>(needed)];
      if (done == kNotDone) return kNotDone;
      ready = std::max(ready, done);
    }
    return ready;
  }

  void Try(double now, const Queues& queues, int32_t run) {
    double end = now;
    for (const auto& [queue, free] : queues) end = std::max(end, free);
    if (end >= best_) return;
    bool last = true;
    for (int32_t i = 0; i < ties_.count(); ++i) {
      if (IsWait(i) || done_[static_cast<size_t>(i)] != kNotDone) continue;
      last = false;
      const double ready = Ready(i);
      if (ready == kNotDone) continue;
      const double start = std::max(now, ready);
      Queues with = queues;
      double next = start;
      if (queues_[static_cast<size_t>(i)].empty()) {
        next += costs_[static_cast<size_t>(i)];
        done_[static_cast<size_t>(i)] = next;
      } else {
        double& free = with[queues_[static_cast<size_t>(i)]];
        free = std::max(free, start) + costs_[static_cast<size_t>(i)];
        done_[static_cast<size_t>(i)] = free;
      }
      Try(next, with, run + 1);
      done_[static_cast<size_t>(i)] = kNotDone;
    }
    if (last) best_ = end;
  }

  const Dependencies& ties_;
  std::vector<double> costs_;
  std::vector<std::string_view> queues_;
  std::vector<double> done_;
  double best_ = 0;
};

// Two chunks of at most four nodes that take time, one or two of them exchanges. Chunks that are alike
// take the same times.
std::unique_ptr<TimedStep> SmallStep(uint64_t seed, bool alike) {
  std::mt19937_64 random(seed);
  auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  auto time = [&] { return "=" + std::to_string(1 + below(40)); };
  auto step = std::make_unique<TimedStep>();
  const size_t shape = below(4);
  for (int chunk = 0; chunk < 2; ++chunk) {
    if (alike) random.seed(seed);
    const std::string c = std::to_string(chunk);
    std::string text = "A" + c + time() + ": x; D" + c + time() + " dispatch: A" + c + "; d" + c +
                       " wait: D" + c + "; E" + c + time() + ": d" + c;
    if (shape == 1) text += "; S" + c + time() + ": A" + c;
    if (shape == 2) text += "; C" + c + time() + " combine: E" + c + "; c" + c + " wait: C" + c;
    if (shape == 3) text += "; B" + c + time() + ": x";
    step->Forward("m", text);
  }
  return step;
}

struct Ratios {
  double average = 0, worst = 0;
};
// Of the time found to the shortest.
Ratios AgainstTheBest(bool alike) {
  constexpr int kSteps = 200;
  Ratios ratios;
  for (uint64_t seed = 0; seed < kSteps; ++seed) {
    auto step = SmallStep(seed, alike);
    Planned planned(*step);
    double found = planned.orders.AsItIs().microseconds;
    for (int32_t window : {1, 2, 4, 8}) {
      found = std::min(found, planned.orders.WithinWindow(window, kPlenty).microseconds);
    }
    const double best = ShortestTime(planned.ties, planned.costs).Find();
    EXPECT_GE(found, best) << seed << "\n" << Print(step->graph());
    ratios.average += found / best / kSteps;
    ratios.worst = std::max(ratios.worst, found / best);
  }
  return ratios;
}

// Choosing as one goes finds nearly the best order of chunks that are alike, as cutting makes them.
// Where they are not, turning their order round might have been better, which is not tried.
TEST(OverlapOrderProperty, NearTheBestOfAllOrders) {
  const Ratios alike = AgainstTheBest(true), different = AgainstTheBest(false);
  EXPECT_LT(alike.average, 1.01);
  EXPECT_LT(alike.worst, 1.1);
  EXPECT_LT(different.average, 1.1);
  EXPECT_LT(different.worst, 1.5);
  RecordProperty("ratios", fmt::format("{:.4f} {:.4f} {:.4f} {:.4f}", alike.average, alike.worst,
                                       different.average, different.worst));
}

}  // namespace
}  // namespace gt::overlap_order_test
