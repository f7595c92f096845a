// What the passes of a job did to its step, in a few lines for people.
#pragma once

#include <string>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/passes/framework/manager.h"

namespace gt {

// A line for each kind of rewrite that changed the step, at most ten: cleaning, memory policy, resharding,
// chunks, process groups, buckets, order, kernels. `graph`: the step after all passes.
std::vector<std::string> RewriteLines(const PipelineReport& report, const Graph& graph);

}  // namespace gt
