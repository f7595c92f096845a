// An order of a chunked step in which communication hides behind compute, found by letting the step
// run on paper.
//
// A device has one compute stream and a queue for each process group. At every moment the node to
// run next is chosen among those that could start at once:
//   - collectives are launched as soon as what they send is there;
//   - a wait can start once its collective is done; until then others go first;
//   - of compute, what leads to the earliest exchange of tokens goes first, so that queues never
//     starve. What leads to none (gradients of weights) has time for about a layer, and fills gaps.
// When nothing can start, the compute stream stands still until the first collective is done: that
// time is exposed.
//
// A window bounds how far the order may stray from that of the graph, counted in exchanges: a node
// waits until everything more than a window before it is done. It is what keeps memory in bounds,
// since values live longer the further their makers and users are apart.
//
// Gathers of parameters depend on nothing the step computes. They and what prepares them keep their
// place among the exchanges; bucketing (passes/bucket_fsdp.h) has chosen it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gt/passes/dependencies.h"
#include "gt/passes/live_memory.h"
#include "gt/sim/cost_model.h"

namespace gt {

class OverlapOrder {
 public:
  // All must outlive it, and the graph stay as it is.
  OverlapOrder(const Graph& graph, const Dependencies& dependencies, const CostModel& costs);

  struct Result {
    std::vector<int32_t> order;  // numbers of nodes
    double microseconds = 0;
    // Bytes that the step allocates and has in use at once, own parts (passes/own_parts.h) aside.
    int64_t peak = 0;
  };
  // As the graph stands.
  Result AsItIs();
  // Keeps to `budget` bytes as well as it can: when a node would go beyond, the order of the graph is
  // followed until memory is free again.
  Result WithinWindow(int32_t window, int64_t budget);

  // Exchanges of tokens and of counts of one region in one direction, all chunks together, at the most. 0: there
  // is nothing to hide.
  int32_t exchanges_per_region() const { return exchanges_per_region_; }

 private:
  enum class Kind : uint8_t { kCompute, kLaunch, kWait };
  struct Facts {
    double cost = 0;
    int32_t queue = -1;   // of a launch
    int32_t launch = -1;  // of a wait: what it waits for
    int32_t exchanges_before = 0;
    int32_t priority = 0;  // smaller goes first
    Kind kind = Kind::kCompute;
    bool pinned = false;  // keeps its place among the exchanges
  };
  class Run;

  void Classify(const Node& node, const CostModel& costs);
  void CountExchanges();
  void Prioritize();
  Facts& Of(const Node& node) { return facts_[static_cast<size_t>(node.number())]; }
  Facts& Of(int32_t number) { return facts_[static_cast<size_t>(number)]; }

  const Dependencies& dependencies_;
  std::vector<Facts> facts_;  // by number
  std::optional<LiveMemory> memory_;
  int32_t queues_ = 0;
  int32_t exchanges_ = 0;
  int32_t exchanges_per_region_ = 0;
};

}  // namespace gt
