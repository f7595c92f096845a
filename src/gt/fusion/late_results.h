// Results that a kernel of the backward writes again instead of being kept since the forward: it reads all that
// they are made from anyway, so that this costs one write and frees their memory for the time between. The
// product of a SwiGLU is the example: the gradient of its matrix needs it, its own gradient reads both factors.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/fusion/groups.h"

namespace gt::fusion {

// Puts copies of what makes such results before the groups that read the same, and what needs them after these
// groups. Groups have to be found anew then. Returns how many results there are. Nodes must be numbered.
int64_t WriteResultsLate(Graph& graph, const std::vector<Group>& groups);

}  // namespace gt::fusion
