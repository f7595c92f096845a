// A train step as it ran on paper (sim/step_clock.h) or on a device: when each kernel, collective and
// copy was under way, and what held up the compute stream.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/sim/cost_model.h"

namespace gt {

struct TimeInterval {
  double start = 0, end = 0;  // microseconds

  double length() const { return end - start; }
  friend bool operator==(const TimeInterval&, const TimeInterval&) = default;
};

// Intervals sorted and joined where they touch. Empty ones are gone.
std::vector<TimeInterval> Union(std::vector<TimeInterval> intervals);
double Length(std::span<const TimeInterval> joined);
// Of the time that is in both.
double CommonLength(std::span<const TimeInterval> joined,
                    std::span<const TimeInterval> other_joined);

// One stay of a node in a lane.
struct LaneSpan {
  const Node* node = nullptr;
  int32_t lane = 0;
  TimeInterval time;
  double launched = 0;  // of a collective or copy: when the compute stream came to it
};

struct Timeline {
  static constexpr int32_t kComputeLane = 0;
  // "compute", then group names, "host copies", "count copies" and "host copies back" as they come
  std::vector<std::string> lanes;
  std::vector<LaneSpan> spans;  // in order of graph position; of every node that takes time
  // Of the compute stream, idle because of a wait or a read. Parts of one idle time that two of them
  // are to blame for (counts read while tokens are waited for) belong to the first.
  std::vector<LaneSpan> stalls;
  double step = 0;  // microseconds from the first launch to the end of the last
};

// In the graph's own order. Numbers its nodes. Linear in nodes and operands.
Timeline Simulate(const Graph& graph, const CostModel& costs);

}  // namespace gt
