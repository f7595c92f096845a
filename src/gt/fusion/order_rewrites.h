// A sort of expert numbers, its inverse and the counting of tokens become one operator (gt::expert_order,
// kernels/expert_order.h), where it is known how many experts there are. Results are integers: no bit changes.
#pragma once

#include <cstdint>

#include "gt/fusion/fuse_options.h"
#include "gt/ir/graph.h"

namespace gt::fusion {

// Returns how many sorts were replaced.
int64_t OrderExperts(Graph& graph, const FuseOptions& options);

}  // namespace gt::fusion
