#include "gt/passes/chunk/chunk.h"

#include <optional>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/passes/chunk/chunker.h"

namespace gt {
namespace {

SymbolId FindSymbol(const Graph& graph, const ChunkOptions& options) {
  const ShapeEnv& shapes = graph.shapes();
  std::optional<SymbolId> symbol = shapes.Find(options.symbol);
  bool used = false;
  for (const auto& input : graph.inputs()) {
    used |= symbol && input->value.type().Mentions(*symbol);
  }
  if (!used) {
    Fail(ErrorCode::kChunkExtent,
         "no input of the graph has a dimension {} to cut; capture the step with that dimension "
         "symbolic",
         options.symbol);
  }
  int64_t extent = shapes.Hint(Dim::Symbol(*symbol));
  if (extent < options.num_chunks) {
    Fail(ErrorCode::kChunkExtent, "{} ({}) is {}, which cannot make {} chunks", options.symbol,
         EnumName(options.chunk_dim), extent, options.num_chunks);
  }
  return *symbol;
}

}  // namespace

Chunk::Chunk(ChunkOptions options) {
  Declare(&options_);
  options_ = std::move(options);
}

const PassInfo& Chunk::info() const {
  static constexpr PassInfo kInfo = {
      .name = "chunk",
      .summary = "Cuts modules that exchange tokens into chunks along the batch or the sequence.",
      .description =
          "The nodes of each module that the pattern names and the symbol influences are repeated "
          "for every chunk, forward and backward; chunks differ by one at the most. Values that "
          "enter and mention the symbol are cut (a copy is made only where a piece is not "
          "contiguous), values that leave are put together again, parameters' gradients are added "
          "up from the last chunk to the first, and buffers are handed from chunk to chunk. What "
          "the forward keeps for the backward stays with its chunk. Symbols bound by data get a "
          "fresh image for each chunk. Parameters do not mention the symbol, so what prepares "
          "them stays single. Gradients are added before their reduce-scatter, unless `strict` "
          "asks for what eager chunking does. Runs behind rematerialize, cpu_offload and "
          "reshard_after_forward, whose nodes are cut like any others.",
      .reads = "sizes, modules, phases, labels of expert parallelism, roles of outputs, facts.",
      .writes =
          "copies of nodes with the chunk's metadata, splits, concatenations, sums; symbols, facts "
          "and guards of the chunks.",
      .never =
          "keeps the bits of the step that is not cut (a matrix product over fewer rows may round "
          "otherwise); with `strict` they are those of strategy eager. Repeats a node that the "
          "symbol does not influence, or changes a node outside of the modules.",
  };
  return kInfo;
}

bool Chunk::RunImpl(Graph& graph, PassContext& /*context*/) {
  Chunker chunker(graph, options_, FindSymbol(graph, options_));
  chunker.Run();
  const ChunkRegions& regions = chunker.regions();
  for (int32_t root = 0; root < regions.root_count(); ++root) {
    if (regions.size(2 * root) == 0) continue;
    ++roots_;
    log::Debug("chunk: {}: {} nodes forward and {} backward, {} times", regions.name(root).str(),
               regions.size(2 * root), regions.size(2 * root + 1), options_.num_chunks);
  }
  copies_ += chunker.counts().copies;
  splits_ += chunker.counts().splits;
  joins_ += chunker.counts().joins;
  sums_ += chunker.counts().sums;
  handed_on_ += chunker.counts().handed_on;
  return true;
}

}  // namespace gt
