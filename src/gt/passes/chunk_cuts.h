// Where values are cut into chunks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gt/config/config.h"
#include "gt/ir/graph.h"

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
  Cuts(ShapeEnv& shapes, SymbolId symbol, ChunkDim dim)
      : shapes_(shapes), symbol_(symbol), dim_(dim) {}

  // Fails when there is no such place; `root` is who asks.
  Cut Of(const Value& value, Name root);

 private:
  Dim Factor(const Value& value, const Dim& size, Name root);
  [[noreturn]] void Reject(const Value& value, Name root, std::string_view why) const;
  [[noreturn]] void RejectCollective(const Value& value, const Node& collective, Name root) const;

  ShapeEnv& shapes_;
  SymbolId symbol_;
  ChunkDim dim_;
};

// How messages about chunking name a node, and a value.
std::string Describe(const Node& node);
std::string Describe(const Value& value);

}  // namespace gt
