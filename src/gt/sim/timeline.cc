#include "gt/sim/timeline.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "gt/passes/aliasing.h"
#include "gt/passes/host_reads.h"

namespace gt {
namespace {

bool IsWait(const Operator& op) {
  return op.collective == Collective::kWait || op.transfer == Transfer::kWait;
}

// The host launches, the compute stream and the queues run. All times are in microseconds.
class Simulation {
 public:
  Simulation(const Graph& graph, const CostModel& costs)
      : costs_(costs),
        symbols_(graph.shapes().Hints()),
        host_computes_(costs.device().launch_us == 0) {
    ready_.reserve(static_cast<size_t>(graph.node_count()));
    timeline_.spans.reserve(static_cast<size_t>(graph.node_count()));
    timeline_.lanes.emplace_back("compute");
    queue_free_.push_back(0);
  }

  void Visit(const Node& node) {
    const Operator& op = node.op();
    if (op.reads_data) {
      Read(node);
    } else if (IsWait(op)) {
      Wait(node);
    } else if (!TakesTime(node, symbols_)) {
      ready_[&node] = OperandsReady(node);
    } else if (op.collective != Collective::kNone || op.transfer != Transfer::kNone) {
      Enqueue(node);
    } else {
      Run(node);
    }
  }

  Timeline Finish() {
    timeline_.step = std::max(host_, stream_);
    for (double free : queue_free_) timeline_.step = std::max(timeline_.step, free);
    return std::move(timeline_);
  }

 private:
  // When the results of a node are there, and whether the host can look at them without asking the
  // device.
  struct Ready {
    double time = 0;
    bool on_host = false;
  };

  Ready OperandsReady(const Node& node) const {
    Ready ready;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Node* producer = node.operand(i)->producer();
      if (producer == nullptr) continue;
      const Ready& operand = ready_.at(producer);
      ready.time = std::max(ready.time, operand.time);
      ready.on_host |= operand.on_host;
    }
    return ready;
  }

  void Run(const Node& node) {
    host_ += costs_.device().launch_us;
    double start = std::max(stream_, host_);
    stream_ = start + costs_.Microseconds(node);
    if (host_computes_) host_ = stream_;
    timeline_.spans.push_back({&node, Timeline::kComputeLane, {start, stream_}});
    ready_[&node] = {stream_};
  }

  void Enqueue(const Node& node) {
    host_ += costs_.device().launch_us;
    int32_t lane = LaneOf(node);
    double& free = queue_free_[static_cast<size_t>(lane)];
    double launched = std::max(stream_, host_);
    // What another queue makes (a copy that is to come back) may be there later than that.
    double start = std::max({launched, free, OperandsReady(node).time});
    free = start + costs_.Microseconds(node);
    timeline_.spans.push_back({&node, lane, {start, free}, launched});
    ready_[&node] = {free, node.op().transfer == Transfer::kOffload};
  }

  void Wait(const Node& node) {
    Ready awaited = OperandsReady(node);
    AddStall(node, awaited.time);
    stream_ = std::max(stream_, awaited.time);
    if (host_computes_) host_ = stream_;
    ready_[&node] = {stream_, awaited.on_host};
  }

  void Read(const Node& node) {
    Ready read = OperandsReady(node);
    double known = read.time + (read.on_host ? 0 : costs_.device().host_read_us);
    AddStall(node, known);
    host_ = std::max(host_, known);
    if (host_computes_) stream_ = host_;
    ready_[&node] = {host_, true};
  }

  // The stream has nothing to do from when it and the host have both come to the node.
  void AddStall(const Node& node, double until) {
    double from = std::max(stream_, host_);
    if (until <= from) return;
    timeline_.stalls.push_back({&node, Timeline::kComputeLane, {from, until}});
  }

  int32_t LaneOf(const Node& node) {
    std::string_view name = QueueOf(node);
    auto found = lanes_.find(name);
    if (found != lanes_.end()) return found->second;
    auto lane = static_cast<int32_t>(timeline_.lanes.size());
    lanes_.emplace(name, lane);
    timeline_.lanes.emplace_back(name);
    queue_free_.push_back(0);
    return lane;
  }

  const CostModel& costs_;
  SymbolValues symbols_;
  bool host_computes_;              // then there is one clock for both
  double host_ = 0;                 // when the host comes to the next node
  double stream_ = 0;               // when the compute stream is done with all that it was given
  std::vector<double> queue_free_;  // by lane
  std::map<std::string, int32_t, std::less<>> lanes_;
  std::unordered_map<const Node*, Ready> ready_;
  Timeline timeline_;
};

}  // namespace

std::vector<TimeInterval> Union(std::vector<TimeInterval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const TimeInterval& a, const TimeInterval& b) { return a.start < b.start; });
  std::vector<TimeInterval> joined;
  for (const TimeInterval& interval : intervals) {
    if (interval.length() <= 0) continue;
    if (!joined.empty() && interval.start <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, interval.end);
    } else {
      joined.push_back(interval);
    }
  }
  return joined;
}

double Length(std::span<const TimeInterval> joined) {
  double length = 0;
  for (const TimeInterval& interval : joined) length += interval.length();
  return length;
}

double CommonLength(std::span<const TimeInterval> joined,
                    std::span<const TimeInterval> other_joined) {
  double common = 0;
  for (size_t i = 0, j = 0; i < joined.size() && j < other_joined.size();) {
    const TimeInterval &a = joined[i], &b = other_joined[j];
    common += std::max(0.0, std::min(a.end, b.end) - std::max(a.start, b.start));
    ++(a.end < b.end ? i : j);
  }
  return common;
}

std::string_view QueueOf(const Node& node) {
  const Operator& op = node.op();
  if (IsWait(op)) return "";
  if (op.transfer == Transfer::kOffload) {
    return FeedsHostRead(*node.result()) ? "count copies" : "host copies";
  }
  if (op.transfer == Transfer::kReload) return "host copies back";
  if (op.collective == Collective::kNone) return "";
  return std::get<std::string>(node.arg(op.group_arg));
}

const Node* AwaitedBy(const Node& wait) {
  if (!IsWait(wait.op())) return nullptr;
  // Behind views: a wait may be for a part of what came.
  const Value* value = wait.operand(0);
  while (const Value* viewed = ViewedValue(*value)) value = viewed;
  const Node* node = value->producer();
  return node != nullptr && !QueueOf(*node).empty() ? node : nullptr;
}

Timeline Simulate(const Graph& graph, const CostModel& costs) {
  Simulation simulation(graph, costs);
  for (const Node* node : graph.nodes()) simulation.Visit(*node);
  return simulation.Finish();
}

}  // namespace gt
