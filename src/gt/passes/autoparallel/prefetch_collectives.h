// Starts gathers of parameters ahead of their use and waits for collectives as late as possible, so
// that compute hides them.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/analysis/dependencies.h"
#include "gt/passes/autoparallel/prefetch_collectives_options.h"
#include "gt/passes/framework/pass.h"
#include "gt/passes/overlap/order_text.h"

namespace gt {

class PrefetchCollectives : public Pass {
 public:
  explicit PrefetchCollectives(PrefetchCollectivesOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  std::vector<int32_t> BestOrder(Graph& graph, PassContext& context,
                                 const Dependencies& dependencies, const CommonOrder& common);

  PrefetchCollectivesOptions options_;
  Counter moved_{this, "moved", "nodes with another place among the others"};
  Counter candidates_{this, "candidates", "orders that were judged"};
  Counter over_budget_{this, "over_budget", "orders that were dropped for their memory"};
  Counter microseconds_before_{this, "microseconds_before",
                               "length of the step before, as predicted"};
  Counter microseconds_after_{this, "microseconds_after", "length of the step now, as predicted"};
};

}  // namespace gt
