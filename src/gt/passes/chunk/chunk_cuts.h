// Where values are cut into chunks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gt/ir/graph.h"
#include "gt/passes/chunk/chunk_layout.h"
#include "gt/passes/chunk/chunk_options.h"

namespace gt {

// Where a value is cut: chunk i takes `factor` times the chunk's extent of dimension `dim`.
struct Cut {
  int64_t dim;
  Dim factor;
};

// Finds out where values that mention the symbol are cut. Such a cut must give every chunk what the
// module would make of the chunk's own input.
class Cuts {
 public:
  // The nodes of the graph must be numbered.
  Cuts(Graph& graph, SymbolId symbol, ChunkDim dim)
      : shapes_(graph.shapes()), symbol_(symbol), dim_(dim), layouts_(graph, symbol) {}

  // Fails when there is no such place; `root` is who asks.
  Cut Of(const Value& value, Name root);

  // Nodes that combine elements of different chunks, and the refusal to have one in a body.
  std::span<const Node* const> mixing_nodes() const { return layouts_.conflicts(); }
  [[noreturn]] void RejectMixing(const Node& node, Name root) const;

  // `successor` takes the place of `node`, which is about to be erased.
  void Replace(const Node& node, const Node& successor) { layouts_.Replace(node, successor); }

 private:
  Dim Factor(const Value& value, const Dim& size, Name root);
  void CheckLayout(const Value& value, const Cut& cut, Name root) const;
  [[noreturn]] void Reject(const Value& value, Name root, std::string_view why) const;
  [[noreturn]] void RejectCollective(const Value& value, const Node& collective, Name root) const;

  ShapeEnv& shapes_;
  SymbolId symbol_;
  ChunkDim dim_;
  ChunkLayouts layouts_;
};

// How messages about chunking name a node, and a value.
std::string Describe(const Node& node);
std::string Describe(const Value& value);

}  // namespace gt
