// Refusing a step that does not fit into memory before anything was allocated for it.
#pragma once

#include "gt/ir/graph.h"
#include "gt/sim/memory_curve.h"
#include "gt/train/job.h"

namespace gt {

// Fails with DoesNotFit, with the largest tensors and what other options would need. `curve` is that
// of `graph`.
void RequireFit(Job& job, const Graph& graph, const MemoryCurve& curve);

// Whether the step fits with CUDA graphs as well, which hold memory of their own; if not, a line says so, and
// it runs without them.
bool RecordingsFit(const Job& job, const MemoryCurve& curve);

}  // namespace gt
