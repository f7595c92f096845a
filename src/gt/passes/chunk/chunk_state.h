// What the steps of chunking share: the plan, and which copies exist.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/passes/chunk/chunk.h"
#include "gt/passes/chunk/chunk_cuts.h"
#include "gt/passes/chunk/chunk_regions.h"
#include "gt/passes/chunk/chunk_symbols.h"

namespace gt {

struct ChunkCounts {
  int64_t copies = 0, splits = 0, joins = 0, sums = 0, handed_on = 0;
};

struct ChunkState {
  ChunkState(Graph& graph, const ChunkOptions& options, SymbolId symbol)
      : graph(graph),
        regions(graph, options, symbol),
        symbols(graph, symbol, options.num_chunks),
        cuts(graph, symbol, options.chunk_dim),
        copies(static_cast<size_t>(graph.node_count() * options.num_chunks), nullptr) {}

  // Of a body's node, or of one that a chunk makes from its own sizes; null: not copied so far.
  Node*& CopyOf(const Node& node, int64_t chunk) {
    return copies[static_cast<size_t>(node.number() * symbols.chunks() + chunk)];
  }
  Value* CopyOf(const Value& value, int64_t chunk) {
    Node* copy = CopyOf(*value.producer(), chunk);
    return copy == nullptr ? nullptr : copy->result(value.index());
  }

  // Whether chunks compute the value, so that a node outside needs it put together.
  bool IsOfBody(const Value& value) const {
    return regions.Of(value) != ChunkRegions::kNone ||
           (!value.is_input() && regions.IsReplacedSum(*value.producer()));
  }

  Name RootName(int32_t region) const { return regions.name(ChunkRegions::RootOf(region)); }

  Graph& graph;
  ChunkRegions regions;
  ChunkSymbols symbols;
  Cuts cuts;
  std::vector<Node*> copies;  // by number and chunk
  ChunkCounts counts;
};

}  // namespace gt
