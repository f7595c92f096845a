// Timelines whose times can be computed by hand: for tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/sim/cost_model.h"
#include "gt/sim/timeline.h"

namespace gt {

// The time of a node is what the test says for the name of its first result; 10 if it says nothing.
class FixedCosts : public CostModel {
 public:
  explicit FixedCosts(DeviceSpeed device, std::map<std::string, double> costs)
      : device_(std::move(device)), costs_(std::move(costs)) {}
  double Microseconds(const Node& node) const override {
    auto found = costs_.find(node.result()->name());
    return found == costs_.end() ? 10 : found->second;
  }
  const DeviceSpeed& device() const override { return device_; }

 private:
  DeviceSpeed device_;
  std::map<std::string, double> costs_;
};

// A device whose host takes `launch_us` for a kernel, and 5 to read a number.
inline DeviceSpeed Launching(double launch_us) {
  DeviceSpeed device;
  device.launch_us = launch_us;
  device.host_read_us = 5;
  return device;
}

struct Simulated {
  // `nodes` compute from %x: f32[4] and %n: i64[4], and may bind u0 to u7 by reading; the graph
  // returns nothing.
  Simulated(const std::string& nodes, const DeviceSpeed& device,
            std::map<std::string, double> costs = {})
      : graph(Parse("graph @step(%x: input \"x\" f32[4], %n: input \"n\" i64[4]) {\n" +
                    SymbolsIn(nodes) + nodes + "\n  return\n}\n")) {
    Verify(*graph);
    timeline = Simulate(*graph, FixedCosts(device, std::move(costs)));
  }

  const LaneSpan& Span(const std::string& name) const {
    const Node* node = graph->FindValue(name)->producer();
    for (const LaneSpan& span : timeline.spans) {
      if (span.node == node) return span;
    }
    ADD_FAILURE() << name << " is in no lane";
    return timeline.spans.front();
  }
  TimeInterval Time(const std::string& name) const { return Span(name).time; }
  std::string Lane(const std::string& name) const {
    return timeline.lanes[static_cast<size_t>(Span(name).lane)];
  }
  std::vector<TimeInterval> Stalls() const {
    std::vector<TimeInterval> times;
    for (const LaneSpan& stall : timeline.stalls) times.push_back(stall.time);
    return times;
  }

  std::unique_ptr<Graph> graph;
  Timeline timeline;

 private:
  static std::string SymbolsIn(const std::string& nodes) {
    std::string symbols;
    for (int i = 0; i < 8; ++i) {
      std::string name = "u" + std::to_string(i);
      if (nodes.find(name) != std::string::npos) symbols += name + ": data, hint 1\n";
    }
    return symbols.empty() ? "" : "symbols {\n" + symbols + "}\n";
  }
};

inline void PrintTo(const TimeInterval& interval, std::ostream* out) {
  *out << "[" << interval.start << ", " << interval.end << "]";
}

}  // namespace gt
