// Labels that can be dropped because another one of the same variable is never worse, whatever the
// neighbours take (dead-end elimination), equal labels included.
#pragma once

#include "gt/placement/label_graph.h"

namespace gt::placement {

// Drops them from the vertex; returns how many.
size_t DropDominatedLabels(LabelGraph& graph, int32_t v);

}  // namespace gt::placement
