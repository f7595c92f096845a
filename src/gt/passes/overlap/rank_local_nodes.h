// The rank-local nodes of a step: those that only this rank has, or has in a size of its own.
//
// Ranks see the same graph but for their shards of parameters and gradients, which may be shorter
// on the last ranks, or padded. Plans that must be equal on all ranks ignore those nodes.
#pragma once

#include <vector>

#include "gt/analysis/dependencies.h"

namespace gt {

struct RankLocalNodes {
  RankLocalNodes(const Graph& graph, const Dependencies& dependencies);

  // By number. A gather whose ancestors are parameters alone, or one of these ancestors.
  std::vector<bool> before_gather;
  // By number. Handles this rank's shard: what is before a gather (not the gather itself), and what
  // is after the last reduction of a gradient, or between its last collectives.
  std::vector<bool> own;
};

}  // namespace gt
