// Checks everything that must hold of a graph (see ir/graph.h). Runs after every pass that changed
// something.
#pragma once

#include "gt/ir/graph.h"

namespace gt {

// Throws an Error naming the first node (operator, module) that breaks an invariant, and which one.
void Verify(Graph& graph);

}  // namespace gt
