// The inputs of a train step, and which of their dimensions are symbols.
#pragma once

#include <vector>

#include "gt/dist/mesh.h"
#include "gt/job/sections/compile.h"
#include "gt/trace/capture.h"

namespace gt {

struct Config;

// tokens, labels, positions and valid_tokens, in this order, as large as this rank's batch.
std::vector<StepInput> StepInputs(const Config& config, const Mesh& mesh);

// Whether passes cut the captured step into chunks; `enabled` is not auto.
bool ChunksGraph(const EpOverlapSection& overlap);

// Opens the dimension that is cut. Under tensor parallelism a rank has one of `parts` parts of every
// sequence between the layers: that part is then the symbol.
PrepareInputs OpenChunkedDim(const EpOverlapSection& overlap, int64_t parts);

// Opens the batch dimension, so that one graph runs batches of any size.
PrepareInputs OpenBatch();

}  // namespace gt
