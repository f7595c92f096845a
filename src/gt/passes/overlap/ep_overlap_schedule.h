// Orders a chunked step so that exchanges of tokens hide behind compute.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gt/analysis/dependencies.h"
#include "gt/config/config.h"
#include "gt/passes/framework/pass.h"
#include "gt/passes/overlap/order_text.h"
#include "gt/sim/cost_model.h"

namespace gt {

using CostModelFor = std::function<std::unique_ptr<CostModel>(const Graph&)>;

struct EpOverlapOptions {
  OverlapSchedule mode = OverlapSchedule::kCost;
  // Share by which the memory that the step allocates may grow; negative: up to `memory_budget`.
  double memory_headroom = -1;
  // Bytes that may be in use at once, whatever the headroom: by what the step allocates, and by what
  // is there all the time (EpOverlapContext::constant_bytes). 0: no limit.
  int64_t memory_budget = 0;
  // Copies of token counts of all chunks go to the host together, for modules that begin with their
  // exchange (structural mode).
  bool pair_first = false;
};

// Lets all ranks apply one decision: the first rank calls `decide` and publishes what it returns, the
// others get that text without deciding anything.
using DecideForAll = std::function<std::string(const std::function<std::string()>& decide)>;

// What the pass needs to know of the job.
struct EpOverlapContext {
  // Without a cost model the step is taken to run on GPUs of today with a network between nodes of
  // eight.
  CostModelFor costs = {};
  // What the step had in use at its peak before it was cut (passes/overlap/measure_peak.h), which it may have
  // again; null: what it has as it is given.
  std::shared_ptr<const int64_t> whole_peak = {};
  DecideForAll decide_for_all = {};  // null: this rank is alone
  // What is in the device's memory all the time while this step runs: parameters, optimizer,
  // communicators of its groups. Null: nothing.
  std::function<int64_t(const Graph&)> constant_bytes = {};
};

class EpOverlapSchedule : public Pass {
 public:
  explicit EpOverlapSchedule(EpOverlapOptions options = {}, EpOverlapContext context = {});

  const PassInfo& info() const override;
  bool Run(Graph& graph) override;

 private:
  bool SplitReads(Graph& graph);
  std::vector<int32_t> OrderByCost(Graph& graph, const Dependencies& dependencies,
                                   const CommonOrder& common);
  bool Apply(Graph& graph, const Dependencies& dependencies, std::span<const int32_t> order);

  EpOverlapOptions options_;
  EpOverlapContext context_;
  Counter split_reads_{this, "split_reads", "reads of token counts that begin before they block"};
  Counter moved_{this, "moved", "nodes with another place among the others"};
  Counter candidates_{this, "candidates", "orders that were judged"};
  Counter over_budget_{this, "over_budget", "orders that were dropped for their memory"};
  Counter microseconds_before_{this, "microseconds_before",
                               "length of the step before, as predicted"};
  Counter microseconds_after_{this, "microseconds_after", "length of the step now, as predicted"};
  Counter bytes_missing_{this, "bytes_missing",
                         "memory beyond the budget that the fastest order would need"};
  Counter microseconds_unlimited_{this, "microseconds_unlimited",
                                  "length of the step with that order"};
};

}  // namespace gt
