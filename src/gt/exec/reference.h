// The reference executor: one node at a time through libtorch's full dispatcher, every result
// compared with its type in the graph. Slow and simple on purpose; what the fast executor does must
// give the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

// Inputs and outputs in graph order, as for Program::Run.
std::vector<at::Tensor> RunReference(const Graph& graph, std::span<const at::Tensor> inputs);

// A nested graph on its own; `symbols` has the value of each symbol of the graph around it.
std::vector<at::Tensor> RunNested(const Graph& body, std::span<const at::Tensor> inputs,
                                  SymbolValues symbols);

}  // namespace gt
