// Orders a chunked step so that exchanges of tokens hide behind compute.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gt/analysis/dependencies.h"
#include "gt/passes/framework/pass.h"
#include "gt/passes/overlap/ep_overlap_options.h"
#include "gt/passes/overlap/order_text.h"

namespace gt {

class EpOverlapSchedule : public Pass {
 public:
  explicit EpOverlapSchedule(EpOverlapOptions options = {});

  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  bool SplitReads(Graph& graph);
  int64_t BudgetFor(const Graph& graph, PassContext& context, int64_t peak) const;
  std::vector<int32_t> OrderByCost(Graph& graph, PassContext& context,
                                   const Dependencies& dependencies, const CommonOrder& common);
  bool Apply(Graph& graph, const Dependencies& dependencies, std::span<const int32_t> order);

  EpOverlapOptions options_;
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
