// Finds the pass that changes what a graph computes, by running the graph after every pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/passes/framework/context.h"
#include "gt/passes/framework/pass.h"

namespace gt {

// Of the types of the graph's inputs, symbols at their hints: floating point numbers around zero, and
// integers 0 and 1, which are indices into anything.
std::vector<at::Tensor> RandomInputs(const Graph& graph, uint64_t seed);

struct ChangedResults {
  int64_t index = 0;  // of the pass
  std::string spec;
  std::string difference;  // output "y": 3 of 16 elements differ
};

// The reference executor runs the graph as given and after each pass that changes it, on the same
// random inputs and the same random numbers; outputs are compared bit for bit. Nothing if all are
// equal. Fails if the graph as given cannot run here; a graph that can no longer run after a pass
// counts as changed.
std::optional<ChangedResults> FirstChangingResults(const PassList& passes, const Graph& graph,
                                                   PassContext& context);

}  // namespace gt
