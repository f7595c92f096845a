#include "gt/passes/autoparallel/prefetch_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>

#include "gt/analysis/collectives.h"
#include "gt/passes/overlap/order_contest.h"
#include "gt/passes/overlap/rank_local_nodes.h"
#include "gt/sim/live_memory.h"
#include "gt/sim/step_clock.h"

namespace gt {
namespace {

using Kind = StepClock::Kind;

// What takes long enough to hide a collective, and is what distances are counted in.
bool IsCompute(const Operator& op) {
  return op.work == Work::kProduct || op.work == Work::kGroupedProduct ||
         op.work == Work::kAttention;
}

// One walk over the graph that writes the nodes down in a new order. Compute keeps its own.
class ListOrder {
 public:
  ListOrder(const Graph& graph, const Dependencies& dependencies, const StepClock& clock,
            int64_t distance, double in_flight)
      : dependencies_(dependencies),
        clock_(clock),
        distance_(distance),
        limit_(in_flight),
        written_(Count(), false),
        delayed_(Count(), false),
        bytes_(Count(), 0),
        wait_of_(Count(), kNone) {
    const RankLocalNodes parts(graph, dependencies);
    const SymbolValues hints = graph.shapes().Hints();
    for (int32_t number = 0; number < dependencies.count(); ++number) {
      const auto at = static_cast<size_t>(number);
      const Operator& op = dependencies.node(number)->op();
      const bool awaits = clock.kind(number) == Kind::kWait && op.collective == Collective::kWait;
      const bool after_reduction = parts.own[at] && !parts.before_gather[at];
      delayed_[at] = awaits || clock.kind(number) == Kind::kNothing ||
                     (after_reduction && clock.kind(number) == Kind::kKernel);
      if (LaunchesCollective(op)) bytes_[at] = MovedBytes(*dependencies.node(number), hints);
      if (awaits && clock.awaited(number) >= 0) AddWait(number, parts);
      if (IsCompute(op)) ++compute_;
    }
    compute_ = 0;
  }

  std::vector<int32_t> Written() {
    for (int32_t number = 0; number < dependencies_.count(); ++number) {
      StartGathers();
      if (delayed_[static_cast<size_t>(number)]) continue;
      Write(number);
      FinishOldest(number);
    }
    for (int32_t number = 0; number < dependencies_.count(); ++number) Write(number);
    return std::move(order_);
  }

 private:
  static constexpr int32_t kNone = -1;
  struct Gather {
    int32_t launch = kNone;
    int64_t compute = 0;  // before its wait
  };
  size_t Count() const { return static_cast<size_t>(dependencies_.count()); }

  // Waits are shown in order, so gathers are in that of their first use.
  void AddWait(int32_t wait, const RankLocalNodes& parts) {
    const int32_t launch = clock_.awaited(wait);
    if (wait_of_[static_cast<size_t>(launch)] != kNone) return;  // one of several results
    wait_of_[static_cast<size_t>(launch)] = wait;
    if (parts.before_gather[static_cast<size_t>(launch)]) gathers_.push_back({launch, compute_});
  }

  void StartGathers() {
    for (; !gathers_.empty(); gathers_.pop_front()) {
      const auto [launch, compute] = gathers_.front();
      if (written_[static_cast<size_t>(launch)]) continue;
      const auto bytes = static_cast<double>(bytes_[static_cast<size_t>(launch)]);
      if (compute - compute_ > distance_ || (in_flight_ > 0 && in_flight_ + bytes > limit_)) return;
      Write(launch);
    }
  }

  // No wait is earlier than it was.
  void FinishOldest(int32_t number) {
    while (in_flight_ > limit_ && !running_.empty()) {
      const int32_t wait = wait_of_[static_cast<size_t>(running_.front())];
      if (wait > number) return;
      running_.pop_front();
      if (wait != kNone) Write(wait);
    }
  }

  // What it needs first. Without recursion: chains of views may be as long as the graph.
  void Write(int32_t wanted) {
    pending_.push_back(wanted);
    while (!pending_.empty()) {
      const int32_t number = pending_.back();
      const size_t before = pending_.size();
      if (!written_[static_cast<size_t>(number)]) {
        for (int32_t needed : dependencies_.NeededBy(number)) {
          if (!written_[static_cast<size_t>(needed)]) pending_.push_back(needed);
        }
      }
      if (pending_.size() > before) continue;
      pending_.pop_back();
      if (!written_[static_cast<size_t>(number)]) Append(number);
    }
  }

  void Append(int32_t number) {
    written_[static_cast<size_t>(number)] = true;
    order_.push_back(number);
    const Operator& op = dependencies_.node(number)->op();
    if (IsCompute(op)) ++compute_;
    if (LaunchesCollective(op)) {
      in_flight_ += static_cast<double>(bytes_[static_cast<size_t>(number)]);
      running_.push_back(number);
    } else if (clock_.kind(number) == Kind::kWait && clock_.awaited(number) >= 0) {
      const auto launch = static_cast<size_t>(clock_.awaited(number));
      in_flight_ -= static_cast<double>(std::exchange(bytes_[launch], 0));
    }
  }

  const Dependencies& dependencies_;
  const StepClock& clock_;
  const int64_t distance_;
  const double limit_;          // of bytes in flight
  std::vector<bool> written_;   // by number, as the next three
  std::vector<bool> delayed_;   // written when another node needs it: waits, views, tails
  std::vector<int64_t> bytes_;  // of launches; 0 once waited for
  std::vector<int32_t> wait_of_;
  std::deque<Gather> gathers_;   // of parameters, not started yet
  std::deque<int32_t> running_;  // launches, the oldest first; some have been waited for
  double in_flight_ = 0;
  int64_t compute_ = 0;  // written, or, before the walk, seen
  std::vector<int32_t> pending_;
  std::vector<int32_t> order_;
};

// As Simulate (sim/timeline.h) and MeasureMemory would judge the graph in this order.
class Judge {
 public:
  Judge(const Graph& graph, const CostModel& costs) : clock_(graph, costs), memory_(graph) {}

  OverlapOrder::Result Of(std::vector<int32_t> order) {
    clock_.Restart();
    memory_.Restart();
    for (int32_t number : order) {
      memory_.Run(number);
      clock_.Run(number);
    }
    return {std::move(order), clock_.Finish(), memory_.peak()};
  }
  const StepClock& clock() const { return clock_; }

 private:
  StepClock clock_;
  LiveMemory memory_;
};

bool Communicates(const Graph& graph) {
  for (const Node* node : graph.nodes()) {
    if (LaunchesCollective(node->op())) return true;
  }
  return false;
}

}  // namespace

PrefetchCollectives::PrefetchCollectives(PrefetchCollectivesOptions options) {
  Declare(&options_);
  options_ = options;
}

const PassInfo& PrefetchCollectives::info() const {
  static constexpr PassInfo kInfo = {
      .name = "prefetch_collectives",
      .summary = "Starts gathers ahead of their use and waits as late as possible.",
      .description =
          "Compute keeps its order. A gather of a parameter starts when at most `distance` matrix "
          "products or attentions are left before its wait, as long as no more than `in_flight_gb` "
          "are under way; gathers start in the order of their use. A wait comes right before the "
          "first node that computes with what was sent, what unpacks and adds reduced gradients "
          "at the end; if more is under way than allowed, the oldest is waited for. The order is "
          "judged by predicted time and memory together with those for shorter distances, as many "
          "as memory requires, and the step as it is; the fastest that fits is taken, so the step "
          "becomes slower only if it did not fit. The first rank decides for all.",
      .reads = "operators, roles of inputs, sizes at their hints, costs, memory that may be used.",
      .writes = "the order of nodes: collectives change their order, on every rank alike.",
      .never = "adds, removes or changes a node, or reorders compute.",
  };
  return kInfo;
}

bool PrefetchCollectives::RunImpl(Graph& graph, PassContext& context) {
  if (!Communicates(graph)) return false;
  const auto& dependencies = context.Get<Dependencies>(graph);
  const CommonOrder common(graph, dependencies);
  const std::string text = context.Decide("the order of the step", [&] {
    return common.ToText(BestOrder(graph, context, dependencies, common));
  });
  const std::vector<int32_t> order = common.FromText(text);
  for (size_t i = 0; i < order.size(); ++i) moved_ += order[i] != static_cast<int32_t>(i) ? 1 : 0;
  return ApplyOrder(graph, dependencies, order);
}

std::vector<int32_t> PrefetchCollectives::BestOrder(Graph& graph, PassContext& context,
                                                    const Dependencies& dependencies,
                                                    const CommonOrder& common) {
  const std::unique_ptr<CostModel> costs = context.Costs(graph);
  Judge judge(graph, *costs);
  int64_t budget = OrderContest::kNoLimit;
  if (const int64_t total = context.MemoryBudget(); total > 0) {
    budget = std::max<int64_t>(total - context.ConstantBytes(graph), 0);
  }
  OrderContest contest(budget);
  std::vector<int32_t> given(static_cast<size_t>(dependencies.count()));
  std::iota(given.begin(), given.end(), 0);
  OverlapOrder::Result as_it_is = judge.Of(std::move(given));
  microseconds_before_ += static_cast<int64_t>(as_it_is.microseconds);
  contest.Enter("as it is", std::move(as_it_is));
  const double in_flight = options_.max_in_flight_gb * 1024 * 1024 * 1024;
  for (int64_t distance = options_.max_compute_pre_fetch;; distance /= 2) {
    // As all ranks will apply it.
    ListOrder list(graph, dependencies, judge.clock(), distance, in_flight);
    const bool fits =
        contest.Enter(fmt::format("{} ahead", distance), judge.Of(common.Placed(list.Written())));
    if (fits || distance == 0) break;
  }
  candidates_ += contest.entered();
  over_budget_ += contest.over_budget();
  microseconds_after_ += static_cast<int64_t>(contest.best().microseconds);
  return contest.best().order;
}

}  // namespace gt
