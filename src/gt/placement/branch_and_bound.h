// The search that decides what reductions, message passing and local search leave open. Depth first:
// each node reduces its part of the problem, bounds it, tries labellings, drops labels that cannot be
// part of a better one, and splits the labels of one variable in two.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/placement/core_graph.h"
#include "gt/placement/deadline.h"
#include "gt/placement/label_graph.h"
#include "gt/placement/label_problem.h"
#include "gt/placement/label_reduction.h"
#include "gt/placement/priced_messages.h"

namespace gt::placement {

class BranchAndBound {
 public:
  BranchAndBound(const LabelProblem& problem, const SolverOptions& options,
                 const Deadline& deadline);

  // Takes over a labelling if it is allowed and better than the best so far.
  void Offer(const std::vector<int32_t>& labels);
  // Searches a part of the problem in which no labelling costs less than `bound`, nor then less than
  // what is returned.
  double Explore(LabelGraph graph, double bound);

  const LabelSolution& best() const { return best_; }

 private:
  double Target() const;  // what a labelling must cost less than to be worth finding
  bool Closed(double bound) const;
  bool OutOfTime() const;
  double ExploreCore(LabelGraph& graph, double bound);
  std::vector<int32_t> Bound(const CoreGraph& core, PricedMessages& messages, double constant);
  void OfferCore(const CoreGraph& core, const std::vector<int32_t>& x);
  double Branch(LabelGraph& graph, int32_t v, int32_t label, double bound);
  // Fills in what the reductions on the way here have eliminated, then offers.
  void OfferReduced(std::vector<int32_t> labels);

  const LabelProblem& problem_;
  const SolverOptions& options_;
  const Deadline& deadline_;
  LabelSolution best_;
  int64_t nodes_ = 0;
  std::vector<const LabelReduction*> reductions_;  // from the root to the node being explored
};

}  // namespace gt::placement
