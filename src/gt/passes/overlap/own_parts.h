// What of a step's nodes only this rank has, or has in a size of its own.
//
// Ranks see the same graph but for their parts of parameters and gradients, which may be shorter on
// the last ranks, or padded. Plans that all ranks must make alike leave those nodes out of account.
#pragma once

#include <vector>

#include "gt/analysis/dependencies.h"

namespace gt {

struct OwnParts {
  OwnParts(const Graph& graph, const Dependencies& dependencies);

  // By number. Leads from parameters alone to a gather, the gather included.
  std::vector<bool> before_gather;
  // By number. Handles this rank's part: what comes before a gather (not the gather itself), and what
  // comes behind the last reduction of a gradient.
  std::vector<bool> own;
};

}  // namespace gt
