// The position of the symbol that is cut in the dimensions it was flattened into.
//
// A dimension of s * k elements may count s samples of k rows, or k runs of s samples: a range of
// it is a chunk's share only in the first case. Sizes do not tell the two apart, so the symbol is
// followed from the inputs on, by what each operator does to the order of elements
// (DimOrder in ir/operator_facts.h). What cannot be followed is unknown, and is not cut.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

struct ChunkLayout {
  enum class Kind : uint8_t {
    kAbsent,    // no dimension mentions the symbol
    kPlaced,    // in row-major order the dimension is [outer, symbol, the rest]
    kConstant,  // elements along the dimension are equal, so that any range is as good as another
    kSamples,   // elements are whole ones of the symbol's, some of them in some order: slices of a
                // dimension that has the symbol alone, and concatenations of such slices
    kNumbered,  // elements depend on their position alone: of whatever they are combined with
    kUnknown,   // or several dimensions mention it
  };
  Kind kind = Kind::kAbsent;
  int32_t dim = -1;     // that mentions the symbol; -1: none, or several
  Dim outer = 1;        // of kPlaced
  int32_t origin = -1;  // number of the node that made `outer` what it is, or that the
                        // symbol could not be followed through; -1: none, or an input
};

class ChunkLayouts {
 public:
  // One walk over the graph, whose nodes must be numbered.
  ChunkLayouts(const Graph& graph, SymbolId symbol);

  // Of an input, or a node that was numbered, or one that took the place of such a node.
  const ChunkLayout& Of(const Value& value) const;

  // The node with that number, or what has taken its place; null for -1.
  const Node* origin(const ChunkLayout& layout) const {
    return layout.origin < 0 ? nullptr : nodes_[static_cast<size_t>(layout.origin)];
  }

  // What the symbol is multiplied with in the size; nothing if the size is not spelled as a
  // multiple.
  std::optional<Dim> SpelledFactor(const Dim& size) const;

  // Nodes that combine elements of different samples, by operands in which the symbol is at
  // different positions.
  std::span<const Node* const> conflicts() const { return conflicts_; }

  // `successor` has the same results with other strides; `node` is about to be erased.
  void Replace(const Node& node, const Node& successor);

 private:
  // As SpelledFactor, or by the sizes of this step: types have tied them to each other already.
  std::optional<Dim> FactorOf(const Dim& size) const;

  ChunkLayout OfType(const TensorType& type) const;
  ChunkLayout OfInput(const TensorType& type) const;
  ChunkLayout OfResult(const Node& node, const Value& result, int32_t dim);

  ChunkLayout Kept(const Node& node, const Value& result, int32_t dim);
  ChunkLayout Regrouped(const Node& node, const Value& result, int32_t dim) const;
  ChunkLayout Reordered(const Node& node, const Value& result, int32_t dim);
  ChunkLayout LookedUp(const Node& node, const Value& result, int32_t dim);
  ChunkLayout Written(const Node& node, const Value& result, int32_t dim);
  ChunkLayout AcrossRanks(const Node& node, const Value& result, int32_t dim) const;
  ChunkLayout Samples(const Value& result, int32_t dim, const Node& node) const;
  ChunkLayout Otherwise(const Node& node, const Value& result, int32_t dim) const;

  ChunkLayout Joined(const Node& node, const Dim& size, int32_t begin, int32_t end);
  ChunkLayout Merge(const Node& node, ChunkLayout a, const ChunkLayout& b);
  std::optional<ChunkLayout> PartOf(const Node& node, const Value& result, int32_t dim) const;
  std::optional<ChunkLayout> Concatenated(const Node& node, int32_t dim) const;
  std::optional<ChunkLayout> MovedSamples(const Node& node, const Value& result, int32_t dim) const;
  bool HasWholeSamples(const Value& value) const;
  const ChunkLayout* PointedInto(const Value& indices, const Dim& size) const;
  // Of the elements that one sample has next to each other in the value's dimension.
  std::optional<Dim> InnerOf(const Value& value) const;

  const ShapeEnv& shapes_;
  SymbolId symbol_;
  std::unordered_map<const Value*, ChunkLayout> inputs_;
  std::vector<ChunkLayout> layouts_;  // of all results, node by node
  std::vector<size_t> first_;         // by number: where the node's results begin in it
  std::vector<const Node*> nodes_;    // by number
  std::unordered_map<const Node*, int32_t> successors_;  // -> number of the node it replaced
  std::vector<const Node*> conflicts_;
};

}  // namespace gt
