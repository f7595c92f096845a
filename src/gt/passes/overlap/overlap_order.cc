#include "gt/passes/overlap/overlap_order.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "gt/base/error.h"
#include "gt/passes/overlap/rank_local_nodes.h"

namespace gt {
namespace {

constexpr int32_t kAtOnce = -1;  // a priority

// A wait that is nearly over is worth idling for when everything else that is ready takes much
// longer: the nodes after the wait would start that much later. Shares of the longer time.
constexpr double kNearlyOver = 0.15;
constexpr double kOvershoot = 1.5;
constexpr int kAlternatives = 8;  // nodes looked at for a shorter one

bool IsExchange(const Node& node) {
  return node.op().collective == Collective::kAllToAll && node.meta().chunk != nullptr &&
         node.meta().chunk->role == ChunkRole::kBody;
}

}  // namespace

OverlapOrder::OverlapOrder(const Graph& graph, const Dependencies& dependencies,
                           const CostModel& costs)
    : dependencies_(dependencies),
      clock_(graph, costs),
      facts_(static_cast<size_t>(dependencies.count())),
      memory_(graph) {
  CountExchanges();
  const RankLocalNodes parts(graph, dependencies);
  for (int32_t number = 0; number < dependencies.count(); ++number) {
    const auto index = static_cast<size_t>(number);
    // A copy back from the host depends on nothing that happens meanwhile either.
    const bool reload = dependencies.node(number)->op().transfer == Transfer::kReload;
    Of(number).pinned = parts.before_gather[index] || reload;
    // Ranks whose shards differ in size are to find the same order.
    if (parts.own[index]) clock_.MakeFree(number);
  }
  Prioritize();
}

void OverlapOrder::CountExchanges() {
  struct Region {
    Name name;
    bool backward;
    bool operator==(const Region&) const = default;
  };
  auto hash = [](const Region& region) {
    return std::hash<Name>()(region.name) * 2 + static_cast<size_t>(region.backward);
  };
  std::unordered_map<Region, int32_t, decltype(hash)> by_region(16, hash);
  for (int32_t number = 0; number < dependencies_.count(); ++number) {
    const Node& node = *dependencies_.node(number);
    Of(number).exchanges_before = exchanges_;
    if (!IsExchange(node)) continue;
    ++exchanges_;
    int32_t& count = by_region[{node.meta().chunk->region, node.meta().chunk->backward}];
    exchanges_per_region_ = std::max(exchanges_per_region_, ++count);
  }
}

// By the number of the first exchange that a node is an ancestor of.
void OverlapOrder::Prioritize() {
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  std::vector<int32_t> leads_to(facts_.size(), kNone);
  for (int32_t number = dependencies_.count() - 1; number >= 0; --number) {
    Facts& facts = Of(number);
    int32_t& first = leads_to[static_cast<size_t>(number)];
    for (int32_t user : dependencies_.UsersOf(number)) {
      first = std::min(first, leads_to[static_cast<size_t>(user)]);
    }
    if (IsExchange(*dependencies_.node(number))) first = facts.exchanges_before;
    const bool at_once = clock_.kind(number) == StepClock::Kind::kQueued || facts.pinned;
    const int32_t in_time = facts.exchanges_before + exchanges_per_region_;
    facts.priority = at_once ? kAtOnce : std::min(first, in_time);
  }
}

// One step on paper, each node chosen when the device is free.
class OverlapOrder::Run {
 public:
  // `windows`: how far ahead nodes may run, by the number of exchanges before them.
  Run(OverlapOrder& plan, const std::vector<int32_t>& windows, int64_t budget)
      : plan_(plan),
        clock_(plan.clock_),
        windows_(windows),
        budget_(budget),
        over_budget_(static_cast<size_t>(plan.exchanges_) + 1, false),
        missing_(plan.facts_.size()),
        left_(static_cast<size_t>(plan.exchanges_) + 1, 0),
        run_(plan.facts_.size(), false),
        waits_for_(plan.facts_.size(), kNone),
        next_wait_(plan.facts_.size(), kNone) {
    plan_.memory_.Restart();
    clock_.Restart();
    result_.order.reserve(plan_.facts_.size());
  }

  Result Ordered() {
    const Dependencies& ties = plan_.dependencies_;
    for (int32_t number = 0; number < ties.count(); ++number) {
      missing_[static_cast<size_t>(number)] = static_cast<int32_t>(ties.NeededBy(number).size());
      ++left_[static_cast<size_t>(plan_.Of(number).exchanges_before)];
    }
    AdvanceFrontier();
    for (int32_t number = 0; number < ties.count(); ++number) {
      if (missing_[static_cast<size_t>(number)] == 0) Arrive(number);
    }
    while (static_cast<int32_t>(result_.order.size()) < ties.count()) {
      Wake();
      DropWhatHasRun();
      if (ready_.empty()) {
        StandStillUntil(clock_.NextEnd());
        continue;
      }
      int32_t chosen = Choose();
      if (chosen >= 0 && plan_.memory_.IfNext(chosen) > budget_) chosen = First(chosen);
      if (chosen >= 0) Complete(chosen);
    }
    result_.microseconds = clock_.Finish();
    result_.peak = plan_.memory_.peak();
    return std::move(result_);
  }

  // By the number of exchanges that were done: whether more was in use than allowed.
  const std::vector<bool>& over_budget() const { return over_budget_; }

 private:
  static constexpr int32_t kNone = -1;
  template <typename Key>
  using Heap = std::priority_queue<std::pair<Key, int32_t>, std::vector<std::pair<Key, int32_t>>,
                                   std::greater<>>;

  // All that it needs is done.
  void Arrive(int32_t number) {
    const Facts& facts = plan_.Of(number);
    const int32_t window = facts.pinned ? 0 : windows_[static_cast<size_t>(facts.exchanges_before)];
    const int32_t earliest = facts.exchanges_before - window;
    if (earliest > frontier_) {
      too_early_.emplace(earliest, number);
    } else {
      Admit(number);
    }
  }

  void Admit(int32_t number) {
    admitted_.push(number);
    const int32_t launch = clock_.awaited(number);
    if (launch >= 0 && !clock_.IsDone(launch)) {
      int32_t& first = waits_for_[static_cast<size_t>(launch)];
      next_wait_[static_cast<size_t>(number)] = std::exchange(first, number);
      waiting_.push_back(launch);
    } else {
      ready_.emplace(plan_.Of(number).priority, number);
    }
  }

  // Waits whose collective is done by now can run.
  void Wake() {
    clock_.AdvanceTo(clock_.time());
    std::erase_if(waiting_, [this](int32_t launch) {
      if (!clock_.IsDone(launch)) return false;
      int32_t& first = waits_for_[static_cast<size_t>(launch)];
      for (int32_t wait = std::exchange(first, kNone); wait != kNone;
           wait = next_wait_[static_cast<size_t>(wait)]) {
        ready_.emplace(plan_.Of(wait).priority, wait);
      }
      return true;
    });
  }

  // Nodes that went out of turn (First) are still in the heaps.
  void DropWhatHasRun() {
    while (!ready_.empty() && HasRun(ready_.top().second)) ready_.pop();
  }
  bool HasRun(int32_t number) const { return run_[static_cast<size_t>(number)]; }

  // The first in the order of the graph, in place of `chosen`.
  int32_t First(int32_t chosen) {
    while (HasRun(admitted_.top())) admitted_.pop();
    const int32_t first = admitted_.top();
    if (first != chosen) ready_.emplace(plan_.Of(chosen).priority, chosen);
    return first;
  }

  void StandStillUntil(double time) {
    GT_CHECK(time < std::numeric_limits<double>::infinity(), "a schedule that cannot go on");
    clock_.AdvanceTo(time);
  }

  struct NextWait {
    double end = std::numeric_limits<double>::infinity();
    int32_t priority = 0;
  };
  // Of the waits that hold something up, the one that is over first.
  NextWait SoonestWait() const {
    NextWait soonest;
    for (int32_t launch : waiting_) {
      const int32_t wait = waits_for_[static_cast<size_t>(launch)];
      if (wait == kNone || HasRun(wait)) continue;
      const double end = clock_.EndOf(launch);
      if (end < soonest.end) soonest = {end, plan_.Of(wait).priority};
    }
    return soonest;
  }

  // -1: it is better to idle for a moment.
  int32_t Choose() {
    auto [priority, number] = ready_.top();
    if (waiting_.empty() || clock_.kind(number) != StepClock::Kind::kKernel) return Take();
    const NextWait wait = SoonestWait();
    const double gap = wait.end - clock_.time(), cost = clock_.microseconds(number);
    const bool urgent = wait.priority < priority;
    if (!urgent || cost <= kOvershoot * gap) return Take();
    int32_t shorter = TakeShorterThan(kOvershoot * gap);
    if (shorter >= 0) return shorter;
    if (gap > kNearlyOver * cost) return Take();
    StandStillUntil(wait.end);
    return -1;
  }

  int32_t Take() {
    int32_t number = ready_.top().second;
    ready_.pop();
    return number;
  }

  int32_t TakeShorterThan(double limit) {
    std::vector<std::pair<int32_t, int32_t>> passed_over;
    int32_t found = -1;
    for (int i = 0; i < kAlternatives && !ready_.empty() && found < 0; ++i) {
      auto candidate = ready_.top();
      ready_.pop();
      if (HasRun(candidate.second)) continue;
      if (clock_.microseconds(candidate.second) <= limit) {
        found = candidate.second;
      } else {
        passed_over.push_back(candidate);
      }
    }
    for (const auto& candidate : passed_over) ready_.push(candidate);
    return found;
  }

  void Complete(int32_t number) {
    if (plan_.memory_.Run(number) > budget_) over_budget_[static_cast<size_t>(frontier_)] = true;
    clock_.Run(number);
    result_.order.push_back(number);
    run_[static_cast<size_t>(number)] = true;
    --left_[static_cast<size_t>(plan_.Of(number).exchanges_before)];
    AdvanceFrontier();
    for (int32_t user : plan_.dependencies_.UsersOf(number)) {
      if (--missing_[static_cast<size_t>(user)] == 0) Arrive(user);
    }
  }

  // Everything before the frontier is done.
  void AdvanceFrontier() {
    while (frontier_ < plan_.exchanges_ && left_[static_cast<size_t>(frontier_)] == 0) ++frontier_;
    while (!too_early_.empty() && too_early_.top().first <= frontier_) {
      int32_t number = too_early_.top().second;
      too_early_.pop();
      Admit(number);
    }
  }

  OverlapOrder& plan_;
  StepClock& clock_;
  const std::vector<int32_t>& windows_;
  int64_t budget_;
  std::vector<bool> over_budget_;
  Result result_;
  std::vector<int32_t> missing_;  // of what a node needs, by number
  std::vector<int32_t> left_;     // nodes not done, by exchanges before them
  std::vector<bool> run_;         // by number
  int32_t frontier_ = 0;
  // By number: ready or waiting. Nodes that have run are removed when they reach the top.
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> admitted_;
  Heap<int32_t> ready_;             // by priority
  std::vector<int32_t> waiting_;    // launches that admitted waits are for
  std::vector<int32_t> waits_for_;  // by launch: the last of them
  std::vector<int32_t> next_wait_;  // by wait: another one for the same launch
  Heap<int32_t> too_early_;         // by the frontier that lets them in
};

OverlapOrder::Result OverlapOrder::AsItIs() {
  std::vector<int32_t> order(facts_.size());
  std::iota(order.begin(), order.end(), 0);
  return Judge(std::move(order));
}

OverlapOrder::Result OverlapOrder::Judge(std::vector<int32_t> order) {
  memory_.Restart();
  clock_.Restart();
  for (int32_t number : order) {
    memory_.Run(number);
    clock_.Run(number);
  }
  return {std::move(order), clock_.Finish(), memory_.peak()};
}

OverlapOrder::Result OverlapOrder::WithinWindow(int32_t window, int64_t budget) {
  constexpr int kAttempts = 6;
  std::vector<int32_t> windows(static_cast<size_t>(exchanges_) + 1, window);
  Result result;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Run run(*this, windows, budget);
    result = run.Ordered();
    if (result.peak <= budget) break;
    // What is in use there was made by nodes that run ahead of the frontier.
    const std::vector<bool>& over = run.over_budget();
    int32_t narrowed_until = 0;
    for (int32_t frontier = 0; frontier <= exchanges_; ++frontier) {
      if (!over[static_cast<size_t>(frontier)]) continue;
      const int32_t last = std::min(frontier + window, exchanges_);
      for (int32_t i = std::max(frontier, narrowed_until); i <= last; ++i) {
        windows[static_cast<size_t>(i)] /= 2;
      }
      narrowed_until = last + 1;
    }
  }
  return result;
}

// What could run during the stall instead of after it: nodes that need nothing later than the
// stall, from the nearest on, until they take as long as wanted.
std::vector<int32_t> OverlapOrder::ChainAfter(const std::vector<int32_t>& order, size_t stalled,
                                              double wanted) const {
  constexpr size_t kReach = 4096;
  std::unordered_set<int32_t> later, chain;
  std::vector<int32_t> chosen;
  double time = 0;
  const size_t end = std::min(order.size(), stalled + kReach);
  for (size_t i = stalled; i < end && time < wanted; ++i) {
    const int32_t number = order[i];
    const StepClock::Kind kind = clock_.kind(number);
    bool moves = i > stalled && !Of(number).pinned &&
                 (kind == StepClock::Kind::kKernel || kind == StepClock::Kind::kNothing);
    for (int32_t needed : dependencies_.NeededBy(number)) moves &= !later.contains(needed);
    if (!moves) {
      later.insert(number);
      continue;
    }
    chosen.push_back(number);
    time += clock_.microseconds(number);
  }
  // Views that only nodes further on look at stay where they are.
  std::vector<int32_t> needed;
  for (size_t i = chosen.size(); i-- > 0;) {
    bool used = clock_.kind(chosen[i]) == StepClock::Kind::kKernel;
    for (int32_t user : dependencies_.UsersOf(chosen[i])) used |= chain.contains(user);
    if (!used) continue;
    chain.insert(chosen[i]);
    needed.push_back(chosen[i]);
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

OverlapOrder::Result OverlapOrder::FillStalls(Result from, int64_t budget, int tries) {
  constexpr double kWorthTrying = 20;  // microseconds
  Result best = Judge(std::move(from.order));
  std::vector<StepClock::Stall> stalls = clock_.stalls();  // of the best
  std::unordered_set<int32_t> tried;                       // stalled nodes
  while (tries > 0) {
    const StepClock::Stall* longest = nullptr;
    for (const StepClock::Stall& stall : stalls) {
      if (tried.contains(stall.node)) continue;
      if (longest == nullptr || stall.until - stall.from > longest->until - longest->from) {
        longest = &stall;
      }
    }
    if (longest == nullptr || longest->until - longest->from < kWorthTrying) break;
    tried.insert(longest->node);
    const auto place = std::find(best.order.begin(), best.order.end(), longest->node);
    const auto at = static_cast<size_t>(place - best.order.begin());
    const std::vector<int32_t> chain = ChainAfter(best.order, at, longest->until - longest->from);
    if (chain.empty()) continue;
    const std::unordered_set<int32_t> moved(chain.begin(), chain.end());
    std::vector<int32_t> order(best.order.begin(), place);
    order.reserve(best.order.size());
    order.insert(order.end(), chain.begin(), chain.end());
    std::copy_if(place, best.order.end(), std::back_inserter(order),
                 [&](int32_t number) { return !moved.contains(number); });
    --tries;
    Result changed = Judge(std::move(order));
    if (changed.microseconds >= best.microseconds || changed.peak > budget) continue;
    best = std::move(changed);
    stalls = clock_.stalls();
  }
  return best;
}

}  // namespace gt
