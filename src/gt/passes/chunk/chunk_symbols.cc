#include "gt/passes/chunk/chunk_symbols.h"

#include <algorithm>

#include "gt/base/error.h"

namespace gt {

ChunkSymbols::ChunkSymbols(Graph& graph, SymbolId symbol, int64_t chunks)
    : shapes_(graph.shapes()), symbol_(symbol) {
  const Dim whole = Dim::Symbol(symbol), count(chunks);
  Dim rest = whole;
  for (int64_t i = 0; i + 1 < chunks; ++i) {
    extents_.push_back(FloorDiv(whole + Dim(chunks - 1 - i), count));
    rest = rest - extents_.back();
  }
  extents_.push_back(std::move(rest));
  images_.resize(extents_.size());
  for (auto& images : images_) images.resize(shapes_.symbols().size(), kNoImage);
  known_.resize(extents_.size());
  std::vector<size_t> ages(shapes_.symbols().size(), 0);  // of data symbols, as they are bound
  size_t age = 0;
  for (const Node* node : graph.nodes()) {
    for (SymbolId id : node->bound_symbols()) ages[id] = ++age;
  }
  const auto& facts = shapes_.facts();
  for (size_t i = 0; i < facts.size(); ++i) {
    SymbolId youngest = symbol;
    for (const Dim* side : {&facts[i].first, &facts[i].second}) {
      side->ForEachSymbol([&](SymbolId id) {
        if (ages[id] > ages[youngest]) youngest = id;
      });
    }
    if (ages[youngest] > 0) facts_by_youngest_[youngest].push_back(i);
  }
}

Dim ChunkSymbols::OfSymbol(size_t chunk, SymbolId id) const {
  if (id == symbol_) return extents_[chunk];
  const std::vector<SymbolId>& images = images_[chunk];
  return Dim::Symbol(id < images.size() && images[id] != kNoImage ? images[id] : id);
}

Dim ChunkSymbols::In(int64_t chunk, const Dim& dim) {
  if (dim.is_const()) return dim;
  auto at = static_cast<size_t>(chunk);
  if (std::optional<SymbolId> id = dim.as_symbol()) return OfSymbol(at, *id);
  auto [found, is_new] = known_[at].try_emplace(dim);
  if (is_new) {
    found->second = dim.Substitute([&](SymbolId id) { return OfSymbol(at, id); });
  }
  return found->second;
}

Shape ChunkSymbols::In(int64_t chunk, const Shape& shape) {
  Shape result;
  result.reserve(shape.size());
  for (const Dim& dim : shape) result.push_back(In(chunk, dim));
  return result;
}

TensorType ChunkSymbols::In(int64_t chunk, const TensorType& type) {
  TensorType result = type;
  result.sizes = In(chunk, type.sizes);
  result.strides = In(chunk, type.strides);
  return result;
}

std::vector<SymbolId> ChunkSymbols::Bind(int64_t chunk, const Node& node) {
  const int64_t whole = shapes_.Hint(Dim::Symbol(symbol_)), share = shapes_.Hint(extent(chunk));
  std::vector<SymbolId> images;
  int64_t sum = 0, given = 0;  // of hints, whole and in this chunk
  for (SymbolId id : node.bound_symbols()) {
    const Symbol symbol = shapes_.symbol(id);
    sum += symbol.hint;
    int64_t hint = sum * share / whole - given;  // so that sums of hints are divided exactly
    given += hint;
    images.push_back(
        shapes_.AddDataSymbol(std::clamp(hint, symbol.low, symbol.high), symbol.low, symbol.high));
    ImageOf(chunk, id) = images.back();
  }
  for (SymbolId id : node.bound_symbols()) {
    auto facts = facts_by_youngest_.find(id);
    if (facts == facts_by_youngest_.end()) continue;
    for (size_t index : facts->second) {
      const auto [a, b] = shapes_.facts()[index];
      shapes_.AddFact(In(chunk, a), In(chunk, b));
    }
  }
  return images;
}

}  // namespace gt
