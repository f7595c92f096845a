#include "gt/sim/timeline.h"

#include <algorithm>
#include <utility>

#include "gt/sim/step_clock.h"

namespace gt {

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

Timeline Simulate(const Graph& graph, const CostModel& costs) {
  StepClock clock(graph, costs);
  for (int32_t number = 0; number < clock.count(); ++number) clock.Run(number);
  Timeline timeline;
  timeline.step = clock.Finish();
  timeline.lanes = {"compute"};
  timeline.lanes.insert(timeline.lanes.end(), clock.queues().begin(), clock.queues().end());
  std::vector<const Node*> nodes;
  nodes.reserve(static_cast<size_t>(clock.count()));
  for (const Node* node : graph.nodes()) {
    const int32_t number = node->number();
    nodes.push_back(node);
    const StepClock::Kind kind = clock.kind(number);
    if (kind != StepClock::Kind::kKernel && kind != StepClock::Kind::kQueued) continue;
    const int32_t lane =
        kind == StepClock::Kind::kKernel ? Timeline::kComputeLane : clock.queue(number) + 1;
    timeline.spans.push_back(
        {node, lane, {clock.start(number), clock.end(number)}, clock.launched(number)});
  }
  for (const StepClock::Stall& stall : clock.stalls()) {
    timeline.stalls.push_back({nodes[static_cast<size_t>(stall.node)],
                               Timeline::kComputeLane,
                               {stall.from, stall.until}});
  }
  return timeline;
}

}  // namespace gt
