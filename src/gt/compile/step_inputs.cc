#include "gt/compile/step_inputs.h"

#include <span>
#include <utility>

#include "gt/job/config.h"

namespace gt {

std::vector<StepInput> StepInputs(const Config& config, const Mesh& mesh) {
  std::vector<int64_t> sizes = {config.training.local_batch_size,
                                config.training.seq_len / mesh.size(MeshAxis::kCp)};
  return {
      {.name = "tokens", .sizes = sizes},
      {.name = "labels", .sizes = sizes},
      {.name = "positions", .sizes = sizes},
      {.name = "valid_tokens", .sizes = {}, .dtype = at::kFloat},
  };
}

bool ChunksGraph(const EpOverlapSection& overlap) {
  return overlap.enabled == AutoSwitch::kTrue && overlap.strategy == ChunkStrategy::kGraph;
}

PrepareInputs OpenChunkedDim(const EpOverlapSection& overlap, int64_t parts) {
  const bool sequence = overlap.chunk_dim == ChunkDim::kSeq;
  SymbolicDim open{
      .identity = sequence ? "sequence" : "batch", .low = overlap.num_chunks, .multiple = parts};
  return [open, dim = size_t{sequence}](std::span<StepInput> inputs) {
    for (StepInput& input : inputs) {
      if (input.name == "valid_tokens") continue;
      SymbolicDim own = open;
      // Chunks of more than one element need no guard that says so.
      if (input.sizes[dim] / own.multiple >= 2 * own.low) own.low *= 2;
      input.symbolic.push_back({static_cast<int64_t>(dim), std::move(own)});
    }
  };
}

PrepareInputs OpenBatch() {
  return [](std::span<StepInput> inputs) {
    for (StepInput& input : inputs) {
      if (input.name != "valid_tokens") input.symbolic.push_back({0, {.identity = "batch"}});
    }
  };
}

}  // namespace gt
