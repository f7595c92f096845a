// Forward nodes that are recomputed in the backward.
#pragma once

#include <string>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

// The metadata of a forward node for something made in the backward on its behalf.
Meta BackwardMeta(Meta meta);

// The same operator with the same arguments, types and metadata, but in phase backward and on other
// operands. `names` of the results; empty: made from the operator. The original must bind no symbol.
Node* InsertBackwardCopy(Graph& graph, const Node& original, std::vector<Value*> operands,
                         Node* before, std::vector<std::string> names = {});

}  // namespace gt
