// An order of a chunked step in which communication hides behind compute, found by simulating the
// step.
//
// A device has one compute stream and a queue for each process group. At every moment the node to
// run next is chosen among those that could start immediately:
//   - collectives are launched as soon as what they send is available;
//   - a wait can start once its collective is done; until then others go first;
//   - of compute, ancestors of the earliest exchange of tokens run first, so that queues never
//     starve. Ancestors of none (gradients of weights) have time for about a layer, and fill gaps.
// When nothing can start, the compute stream is idle until the first collective is done: that time
// is exposed.
//
// A window bounds how far the order may stray from that of the graph, counted in exchanges: a node
// waits until everything more than a window before it is done. It is what keeps memory in bounds,
// since values live longer the further their makers and users are apart. Where an order would go
// beyond its budget all the same, the window is narrowed there, and there alone.
//
// Gathers of parameters depend on nothing the step computes. They and what prepares them keep their
// place among the exchanges; bucketing (passes/fsdp/bucket_fsdp.h) has chosen it.
//
// However an order was found, one clock (sim/step_clock.h) and one account of memory
// (sim/live_memory.h) judge it.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/analysis/dependencies.h"
#include "gt/sim/cost_model.h"
#include "gt/sim/live_memory.h"
#include "gt/sim/step_clock.h"

namespace gt {

class OverlapOrder {
 public:
  // All must outlive it, and the graph stay as it is.
  OverlapOrder(const Graph& graph, const Dependencies& dependencies, const CostModel& costs);

  struct Result {
    std::vector<int32_t> order;  // numbers of nodes
    double microseconds = 0;
    int64_t peak = 0;  // most bytes allocated by the step that are in use at the same time
  };
  // As the graph is.
  Result AsItIs();
  // Any order that the dependencies allow.
  Result Judge(std::vector<int32_t> order);
  // Keeps to `budget` bytes as well as it can: when a node would go beyond, the order of the graph is
  // followed until memory is free again, and where that does not help, the window is narrowed.
  Result WithinWindow(int32_t window, int64_t budget);
  // Moves single chains of compute from after the longest stalls of the compute stream into them,
  // as long as that makes the step faster and within budget. Looks at no more than `tries`
  // moves, each of which costs as much as judging an order.
  Result FillStalls(Result from, int64_t budget, int tries);

  // Exchanges of tokens and of counts of one region in one direction, all chunks together, at the
  // most. 0: there is nothing to hide.
  int32_t exchanges_per_region() const { return exchanges_per_region_; }

 private:
  struct Facts {
    int32_t exchanges_before = 0;
    int32_t priority = 0;  // smaller runs first
    bool pinned = false;   // keeps its place among the exchanges
  };
  class Run;

  void CountExchanges();
  void Prioritize();
  std::vector<int32_t> ChainAfter(const std::vector<int32_t>& order, size_t stalled,
                                  double wanted) const;
  const Facts& Of(int32_t number) const { return facts_[static_cast<size_t>(number)]; }
  Facts& Of(int32_t number) { return facts_[static_cast<size_t>(number)]; }

  const Dependencies& dependencies_;
  StepClock clock_;
  std::vector<Facts> facts_;  // by number
  LiveMemory memory_;
  int32_t exchanges_ = 0;
  int32_t exchanges_per_region_ = 0;
};

}  // namespace gt
