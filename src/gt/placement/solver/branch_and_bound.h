// The search that decides what reductions, message passing and local search leave open. Depth first:
// each node reduces its part of the problem, bounds it, tries labellings, drops labels that cannot be
// part of a better one, and splits the labels of one variable in two.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/placement/solver/core_graph.h"
#include "gt/placement/solver/deadline.h"
#include "gt/placement/solver/label_graph.h"
#include "gt/placement/solver/label_problem.h"
#include "gt/placement/solver/label_reduction.h"
#include "gt/placement/solver/priced_messages.h"

namespace gt::placement {

class BranchAndBound {
 public:
  BranchAndBound(const LabelProblem& problem, const SolverOptions& options,
                 const Deadline& deadline);

  // Takes over a labelling if it is allowed and better than the best so far; returns whether it is.
  bool Offer(const std::vector<int32_t>& labels);
  // Searches a part of the problem in which no labelling costs less than `bound`, nor then less than
  // what is returned.
  double Explore(LabelGraph graph, double bound);

  const LabelSolution& best() const { return best_; }
  double work() const { return work_; }

 private:
  // How a node made its part of the problem smaller.
  struct Level {
    std::vector<int32_t> labels;      // of what is not part of it any more
    std::vector<int32_t> kept;        // numbers of what is
    const LabelReduction* reduction;  // decides the labels that are left open; may be null
  };

  struct Attempt {
    std::vector<int32_t> decoded;  // the labels that looked best in the end
    std::vector<int32_t> fitting;  // the best ones that fit; empty: none
    double bound = 0;              // the highest, at whatever prices
  };

  double Target() const;  // what a labelling must cost less than to be worth finding
  bool Closed(double bound) const;
  bool OutOfTime() const;
  double ExploreCore(LabelGraph& graph, double bound);
  Attempt Bound(const CoreGraph& core, PricedMessages& messages, double constant);
  // For the asker. `core` and `messages` may be null: nothing was left.
  void NoteLabelBounds(const CoreGraph* core, const PricedMessages* messages, double constant);
  void Polish(const CoreGraph& core, const PricedMessages& messages, Attempt attempt);
  bool OfferCore(const CoreGraph& core, const std::vector<int32_t>& x);
  // Solves parts of a large problem exactly while the rest keeps the labels of the best labelling.
  void SearchNeighbourhoods(const LabelGraph& graph, double bound);
  bool OutOfMemory(const LabelGraph& graph) const;
  double Divide(LabelGraph graph, const CoreGraph& core, const PricedMessages& messages,
                const Attempt& attempt, double bound);
  double Branch(LabelGraph& graph, int32_t v, int32_t label, double bound);
  // Fills in what the reductions on the way here have eliminated, then offers.
  bool OfferReduced(std::vector<int32_t> labels);

  const LabelProblem& problem_;
  const SolverOptions& options_;
  const Deadline& deadline_;
  LabelSolution best_;
  double work_ = 0;  // entries of tables that sweeps went over
  double work_limit_;
  std::vector<Level> levels_;  // from the root to the node being explored
};

}  // namespace gt::placement
