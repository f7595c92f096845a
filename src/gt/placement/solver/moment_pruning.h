// Drops moments that cannot be over-full, or are over-full only if another one is as well, whatever
// the labels are. Merged variables make many moments alike.
#pragma once

#include "gt/placement/solver/label_graph.h"

namespace gt::placement {

void PruneMoments(LabelGraph& graph);

}  // namespace gt::placement
