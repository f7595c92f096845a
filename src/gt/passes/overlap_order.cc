#include "gt/passes/overlap_order.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <set>
#include <string_view>
#include <unordered_map>

#include "gt/base/error.h"
#include "gt/passes/aliasing.h"
#include "gt/passes/own_parts.h"
#include "gt/sim/timeline.h"

namespace gt {
namespace {

constexpr int32_t kAtOnce = -1;  // a priority

// A wait that is nearly over is worth standing still for when all there is to do takes much longer:
// what comes behind it would start that much later. Shares of the longer time.
constexpr double kNearlyOver = 0.15;
constexpr double kOvershoot = 1.5;
constexpr int kAlternatives = 8;  // nodes looked at for a shorter one

bool IsExchange(const Node& node) {
  return node.op().collective == Collective::kAllToAll && node.meta().chunk != nullptr &&
         node.meta().chunk->role == ChunkRole::kBody;
}

// The copy to the host that a read waits for; null: it looks at the device's memory.
const Node* CopyReadBy(const Node& read) {
  const Value* value = read.operand(0);
  while (const Value* viewed = ViewedValue(*value)) value = viewed;
  const Node* made = value->producer();
  return made != nullptr && made->op().transfer == Transfer::kOffload ? made : nullptr;
}

}  // namespace

OverlapOrder::OverlapOrder(const Graph& graph, const Dependencies& dependencies,
                           const CostModel& costs)
    : dependencies_(dependencies), facts_(static_cast<size_t>(dependencies.count())) {
  std::unordered_map<std::string_view, int32_t> queues;  // by name
  for (const Node* node : graph.nodes()) {
    Classify(*node, costs);
    const std::string_view queue = QueueOf(*node);
    if (queue.empty()) continue;
    Of(*node).kind = Kind::kLaunch;
    Of(*node).queue = queues.try_emplace(queue, static_cast<int32_t>(queues.size())).first->second;
  }
  queues_ = static_cast<int32_t>(queues.size());
  CountExchanges();
  const OwnParts parts(graph, dependencies);
  for (int32_t number = 0; number < dependencies.count(); ++number) {
    const auto index = static_cast<size_t>(number);
    Facts& facts = Of(number);
    // A copy back from the host depends on nothing that happens meanwhile either.
    const bool reload = dependencies.node(number)->op().transfer == Transfer::kReload;
    facts.pinned = parts.before_gather[index] || reload;
    if (parts.own[index] && facts.kind == Kind::kCompute) facts.cost = 0;
  }
  memory_.emplace(graph, parts.own);
  Prioritize();
}

void OverlapOrder::Classify(const Node& node, const CostModel& costs) {
  Facts& facts = Of(node);
  facts.cost = costs.Microseconds(node);
  if (const Node* launch = node.op().reads_data ? CopyReadBy(node) : AwaitedBy(node)) {
    facts.kind = Kind::kWait;
    facts.launch = launch->number();
  } else if (node.op().reads_data) {
    facts.cost = costs.device().host_read_us;  // the host looks for itself
  }
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

// The number of the first exchange that a node leads to.
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
    const bool at_once = facts.kind == Kind::kLaunch || facts.pinned;
    const int32_t in_time = facts.exchanges_before + exchanges_per_region_;
    facts.priority = at_once ? kAtOnce : std::min(first, in_time);
  }
}

// One step on paper.
class OverlapOrder::Run {
 public:
  Run(OverlapOrder& plan, int32_t window, int64_t budget)
      : plan_(plan),
        window_(window),
        budget_(budget),
        queue_free_(static_cast<size_t>(plan.queues_), 0.0),
        done_at_(plan.facts_.size(), 0.0),
        missing_(plan.facts_.size()),
        left_(static_cast<size_t>(plan.exchanges_) + 1, 0),
        run_(plan.facts_.size(), false) {
    plan_.memory_->Restart();
    result_.order.reserve(plan_.facts_.size());
  }

  Result AsItIs() {
    for (int32_t number = 0; number < plan_.dependencies_.count(); ++number) Execute(number);
    return Finish();
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
        StandStill();
        continue;
      }
      int32_t chosen = Choose();
      if (chosen >= 0 && plan_.memory_->IfNext(chosen) > budget_) chosen = First(chosen);
      if (chosen >= 0) Complete(chosen);
    }
    return Finish();
  }

 private:
  template <typename Key>
  using Heap = std::priority_queue<std::pair<Key, int32_t>, std::vector<std::pair<Key, int32_t>>,
                                   std::greater<>>;

  // All that it needs is done.
  void Arrive(int32_t number) {
    const Facts& facts = plan_.Of(number);
    int32_t earliest = facts.exchanges_before - (facts.pinned ? 0 : window_);
    if (earliest > frontier_) {
      too_early_.emplace(earliest, number);
    } else {
      Admit(number);
    }
  }

  void Admit(int32_t number) {
    const Facts& facts = plan_.Of(number);
    admitted_.insert(number);
    if (facts.kind == Kind::kWait && DoneAt(facts.launch) > now_) {
      waiting_.emplace(DoneAt(facts.launch), number);
    } else {
      ready_.emplace(facts.priority, number);
    }
  }

  void Wake() {
    while (!waiting_.empty() && waiting_.top().first <= now_) {
      ready_.emplace(plan_.Of(waiting_.top().second).priority, waiting_.top().second);
      waiting_.pop();
    }
  }

  // Nodes that went out of turn (First) are still in the heaps.
  void DropWhatHasRun() {
    while (!ready_.empty() && HasRun(ready_.top().second)) ready_.pop();
    while (!waiting_.empty() && HasRun(waiting_.top().second)) waiting_.pop();
  }
  bool HasRun(int32_t number) const { return run_[static_cast<size_t>(number)]; }

  // The first in the order of the graph, in place of `chosen`.
  int32_t First(int32_t chosen) {
    int32_t first = *admitted_.begin();
    if (first != chosen) ready_.emplace(plan_.Of(chosen).priority, chosen);
    return first;
  }

  void StandStill() {
    GT_CHECK(!waiting_.empty(), "a schedule that cannot go on");
    now_ = waiting_.top().first;
  }

  // -1: it is better to stand still for a moment.
  int32_t Choose() {
    auto [priority, number] = ready_.top();
    if (waiting_.empty()) return Take();
    auto [end, wait] = waiting_.top();
    const double gap = end - now_, cost = plan_.Of(number).cost;
    const bool compute = plan_.Of(number).kind == Kind::kCompute;
    const bool urgent = plan_.Of(wait).priority < priority;
    if (!compute || !urgent || cost <= kOvershoot * gap) return Take();
    int32_t shorter = TakeShorterThan(kOvershoot * gap);
    if (shorter >= 0) return shorter;
    if (gap > kNearlyOver * cost) return Take();
    now_ = end;
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
      if (plan_.Of(candidate.second).cost <= limit) {
        found = candidate.second;
      } else {
        passed_over.push_back(candidate);
      }
    }
    for (const auto& candidate : passed_over) ready_.push(candidate);
    return found;
  }

  void Complete(int32_t number) {
    Execute(number);
    run_[static_cast<size_t>(number)] = true;
    admitted_.erase(number);
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

  void Execute(int32_t number) {
    const Facts& facts = plan_.Of(number);
    result_.order.push_back(number);
    plan_.memory_->Run(number);
    switch (facts.kind) {
      case Kind::kCompute:
        now_ += facts.cost;
        break;
      case Kind::kWait:
        now_ = std::max(now_, DoneAt(facts.launch));
        break;
      case Kind::kLaunch: {
        double& free = queue_free_[static_cast<size_t>(facts.queue)];
        free = std::max(free, now_) + facts.cost;
        done_at_[static_cast<size_t>(number)] = free;
        break;
      }
    }
  }

  double DoneAt(int32_t launch) const { return done_at_[static_cast<size_t>(launch)]; }

  Result Finish() {
    result_.microseconds = now_;
    for (double free : queue_free_) result_.microseconds = std::max(result_.microseconds, free);
    result_.peak = plan_.memory_->peak();
    return std::move(result_);
  }

  OverlapOrder& plan_;
  int32_t window_;
  int64_t budget_;
  Result result_;
  double now_ = 0;
  std::vector<double> queue_free_;
  std::vector<double> done_at_;   // of launches, by number
  std::vector<int32_t> missing_;  // of what a node needs, by number
  std::vector<int32_t> left_;     // nodes not done, by exchanges before them
  std::vector<bool> run_;         // by number
  int32_t frontier_ = 0;
  std::set<int32_t> admitted_;  // ready or waiting
  Heap<int32_t> ready_;         // by priority
  Heap<double> waiting_;        // waits, by the end of what they wait for
  Heap<int32_t> too_early_;     // by the frontier that lets them in
};

OverlapOrder::Result OverlapOrder::AsItIs() { return Run(*this, 0, 0).AsItIs(); }
OverlapOrder::Result OverlapOrder::WithinWindow(int32_t window, int64_t budget) {
  return Run(*this, window, budget).Ordered();
}

}  // namespace gt
