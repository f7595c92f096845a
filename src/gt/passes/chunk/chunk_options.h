// Options of the pass chunk.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "gt/base/text.h"
#include "gt/config/option_struct.h"

namespace gt {

// What is cut: the batch, or each sequence.
enum class ChunkDim { kBatch, kSeq };
// Who cuts: the modules as they run (parallel/chunk_modules.h), or the pass.
enum class ChunkStrategy { kEager, kGraph };

template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<ChunkDim> = {"batch", "seq"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<ChunkStrategy> = {"eager", "graph"};

struct ChunkOptions {
  GT_OPTION(std::string, module_fqn, "layers.*", NotEmpty(),
            "modules to cut, by pattern; those in which no tokens are exchanged are left alone");
  GT_OPTION(std::string, symbol, "s0", NotEmpty(), "the symbol of the extent that is cut");
  GT_OPTION(ChunkDim, chunk_dim, ChunkDim::kBatch, Any(), "what that extent is");
  GT_OPTION(int64_t, num_chunks, 2, Within(2, 1024), "into how many");
  GT_OPTION(bool, disable_early_grad_accumulation, false, Any(),
            "each chunk's gradients go through casts and collectives of their own");
  GT_OPTION(bool, keep_chunks_across_roots, true, Any(),
            "hand chunks on from module to module where nothing needs the whole value");
  GT_END_OPTIONS(ChunkOptions);
};

}  // namespace gt
