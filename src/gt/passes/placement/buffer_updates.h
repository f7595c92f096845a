// When a placed step waits for the sums that its buffers' new values are made of.
#pragma once

#include "gt/ir/graph.h"

namespace gt {

// What is only about the new values of buffers waits for its sums at the end of the step, not in the
// middle, where kernels would wait as well.
void DeferBufferUpdates(Graph& graph);

}  // namespace gt
