// Orders a chunked step so that exchanges of tokens hide behind compute.
#pragma once

#include <functional>
#include <memory>

#include "gt/config/config.h"
#include "gt/passes/dependencies.h"
#include "gt/passes/pass.h"
#include "gt/sim/cost_model.h"

namespace gt {

using CostModelFor = std::function<std::unique_ptr<CostModel>(const Graph&)>;

struct EpOverlapOptions {
  OverlapSchedule mode = OverlapSchedule::kCost;
  double memory_headroom = 0.02;
  // Copies of token counts of all chunks go to the host together, for modules that begin with their
  // exchange (structural mode).
  bool pair_first = false;
};

class EpOverlapSchedule : public Pass {
 public:
  // Without a cost model the step is taken to run on GPUs of today with a network between nodes of
  // eight.
  // `whole_peak`: what the step had in use at its peak before it was cut (passes/measure_peak.h), which
  // it may have again; null: what it has as it is given.
  explicit EpOverlapSchedule(EpOverlapOptions options = {}, CostModelFor costs = {},
                             std::shared_ptr<const int64_t> whole_peak = nullptr);

  const PassInfo& info() const override;
  bool Run(Graph& graph) override;

 private:
  bool SplitReads(Graph& graph);
  bool OrderByCost(Graph& graph);
  bool OrderByStructure(Graph& graph);
  bool Apply(Graph& graph, const Dependencies& dependencies, std::span<const int32_t> order);

  EpOverlapOptions options_;
  CostModelFor costs_;
  std::shared_ptr<const int64_t> whole_peak_;
  Counter split_reads_{this, "split_reads", "reads of token counts that begin before they block"};
  Counter moved_{this, "moved", "nodes with another place among the others"};
  Counter over_budget_{this, "over_budget", "orders that were dropped for their memory"};
  Counter microseconds_before_{this, "microseconds_before",
                               "length of the step before, as predicted"};
  Counter microseconds_after_{this, "microseconds_after", "length of the step now, as predicted"};
};

}  // namespace gt
