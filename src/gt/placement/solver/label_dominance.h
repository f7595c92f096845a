// Labels that can be dropped because another one of the same variable is never worse, whatever the
// neighbours take (dead-end elimination), equal labels included.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/placement/solver/label_graph.h"

namespace gt::placement {

struct DominatedLabel {
  int32_t label = 0;
  int32_t rival = 0;  // that it was dropped for
  double saves = 0;   // with the rival, whatever the neighbours take; at least
};

// Drops them from the vertex, in this order: a rival may be dropped for another one later.
std::vector<DominatedLabel> DropDominatedLabels(LabelGraph& graph, int32_t v);

}  // namespace gt::placement
