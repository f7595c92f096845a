// Passes reach nested graphs (FlexAttention's score and mask functions) through this: nodes hold
// them as shared and constant, so a changed one is a new one.
#pragma once

#include <functional>

#include "gt/ir/graph.h"

namespace gt {

// Runs `rewrite` on each nested graph, once however many nodes share it, and hands the result to
// all of them. True if any changed.
bool RewriteNestedGraphs(Graph& graph, const std::function<bool(Graph&)>& rewrite);

}  // namespace gt
