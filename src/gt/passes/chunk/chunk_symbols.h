// Sizes of chunks. The extent s is cut into N extents that are expressions over s alone, so that no
// new input symbol is needed and they add up to s by arithmetic; symbols bound by data in a chunked
// body (token counts of an exchange) get a fresh image for each chunk, with the facts about them.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

class ChunkSymbols {
 public:
  ChunkSymbols(Graph& graph, SymbolId symbol, int64_t chunks);

  SymbolId symbol() const { return symbol_; }
  int64_t chunks() const { return static_cast<int64_t>(extents_.size()); }
  // They differ by one at the most, larger ones first.
  const Dim& extent(int64_t chunk) const { return extents_[static_cast<size_t>(chunk)]; }

  // The expression as chunk `chunk` sees it.
  Dim In(int64_t chunk, const Dim& dim);
  Shape In(int64_t chunk, const Shape& shape);
  TensorType In(int64_t chunk, const TensorType& type);

  // Fresh symbols for those that `node` binds, for its copy in the chunk. Hints are the chunk's
  // share. Facts are declared as soon as all symbols they mention have their image.
  std::vector<SymbolId> Bind(int64_t chunk, const Node& node);

 private:
  static constexpr SymbolId kNoImage = ~SymbolId{0};
  SymbolId& ImageOf(int64_t chunk, SymbolId id) { return images_[static_cast<size_t>(chunk)][id]; }

  Dim OfSymbol(size_t chunk, SymbolId id) const;

  ShapeEnv& shapes_;
  SymbolId symbol_;
  std::vector<Dim> extents_;
  std::vector<std::vector<SymbolId>> images_;  // by chunk, by symbol that was there before
  // The data symbol of a fact that is bound last -> the fact's number.
  std::unordered_map<SymbolId, std::vector<size_t>> facts_by_youngest_;
  std::vector<std::unordered_map<Dim, Dim>> known_;  // by chunk: what In has answered
};

}  // namespace gt
