// Which values the host looks at while the step runs.
#pragma once

#include "gt/ir/graph.h"

namespace gt {

// Whether a node reads numbers out of this value, or out of what looks into it: views of it, and what
// waits for its copy. Such a copy is a few bytes that the host blocks on, so it must not queue
// behind copies of activations.
bool FeedsHostRead(const Value& value);

}  // namespace gt
