// What operators on rows (kernels/row_operators.h) do besides, so that it costs no pass over memory of its own: the
// addition before a norm, the one after its gradient, the lookup of rows that are multiplied. Each combined
// operator rounds where its parts did, so that no bit changes. Also drops multiplications by one.
#pragma once

#include <cstdint>

#include "gt/fusion/fuse_options.h"
#include "gt/ir/graph.h"

namespace gt::fusion {

// Returns how many were combined.
int64_t CombineRowOperators(Graph& graph, const FuseOptions& options);

}  // namespace gt::fusion
