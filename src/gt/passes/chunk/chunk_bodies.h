// Copies of the nodes of bodies, one for each chunk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gt/passes/chunk/chunk_boundaries.h"
#include "gt/passes/chunk/chunk_state.h"

namespace gt {

class ChunkBodies {
 public:
  ChunkBodies(ChunkState& state, ChunkBoundaries& boundaries, bool keep_across_roots);

  // Copies a node of the region's body for a chunk. What it uses of bodies is copied already.
  void Copy(const Node& node, int32_t region, int64_t chunk, Node* before);

 private:
  void NameChunks();
  std::vector<std::string> NamesOf(const Node& node, int64_t chunk) const;
  Name OriginalName(const Node& node);
  Meta MetaOf(const Node& node, int32_t region, int64_t chunk);

  Graph::Typed WithBoundSymbols(const Node& node, int64_t chunk);
  Graph::Typed Inferred(const Graph::NodeSpec& spec, const Node& node, int32_t region,
                        int64_t chunk);
  bool FollowsSymbol(const Shape& got, const Shape& whole, int64_t chunk);
  [[noreturn]] void RejectSizes(const Node& node, int32_t region, int64_t chunk,
                                const std::string& why) const;

  std::vector<Argument> ArgumentsIn(const Node& node, int64_t chunk,
                                    const std::vector<Value*>& operands);
  GraphRef NestedIn(int64_t chunk, const GraphRef& nested, const OperandList& list,
                    const std::vector<Value*>& operands);

  Value* OperandIn(Value& value, const Node& user, int32_t region, int64_t chunk, Node* before);
  Value* BufferIn(Value& buffer, const Value& update, const Node& user, int32_t root,
                  int64_t chunk);
  Value* HandedOn(Value& value, const Node& user, int32_t region, int64_t chunk, Node* before);
  Value* Remade(Value& value, int32_t region, int64_t chunk, Node* before);

  ChunkState& state_;
  ChunkBoundaries& boundaries_;
  const bool keep_across_roots_;
  std::vector<std::string> suffixes_;  // by chunk: of the names of copies
  std::vector<Name> original_names_;   // by number, of bodies
  std::unordered_map<const Graph*, std::vector<GraphRef>> nested_;
};

}  // namespace gt
