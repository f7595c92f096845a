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

// Opens the dimension that is cut. Where a rank has one of `parts` parts of it, that part is the symbol:
// under tensor parallelism of every sequence between the layers, in a placed step of the batch of all.
PrepareInputs OpenChunkedDim(const EpOverlapSection& overlap, int64_t parts);

// Opens the batch dimension, so that one graph runs batches of any size.
PrepareInputs OpenBatch();

}  // namespace gt
