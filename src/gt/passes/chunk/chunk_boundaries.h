// Where chunks begin and end: whole values are cut into pieces, and what chunks computed is put
// together again or added up.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gt/passes/chunk/chunk_state.h"

namespace gt {

// All nodes are inserted before the node `before`.
class ChunkBoundaries {
 public:
  explicit ChunkBoundaries(ChunkState& state) : state_(state) {}

  // A chunk's piece of a value that mentions the symbol, contiguous.
  Value* PieceOf(Value& value, int32_t region, int64_t chunk, Node* before);
  // The same for a chunk of another root's result, which needs no cut.
  Value* HandOn(Value& value, int32_t region, int64_t chunk, Node* before);

  // What nodes that cut, copy or join for a region carry; `origin` made what they work on.
  Meta BoundaryMeta(int32_t region, ChunkRole role, int64_t chunk, const Node* origin) const;

  // Lets a node outside of all bodies use whole values.
  void UseWholes(Node* node);
  // The whole of a value that the step returns.
  Value* ReturnWhole(Value* value, const Output& output, Node* before);

 private:
  struct Pieces {
    Node* split = nullptr;
    std::vector<Value*> contiguous;  // by chunk; null: not needed so far
  };

  Pieces& PiecesFor(Value& value);
  Node* Split(Value& value, int32_t region, Node* before);
  Value* Contiguous(Value* piece, int32_t region, int64_t chunk, Node* before);
  void Reinfer(Node* node);
  void TakePlaceOf(Node* node, Node* successor);
  Value* WholeFor(Value* value, Node* user);
  template <typename DescribeUser>
  Value* WholeFor(Value* value, bool sums, ChunkProof proof, Node* before,
                  const DescribeUser& describe);
  Value* Whole(Value* value, Node* before);
  Value* SumOf(Value* value, ChunkProof proof, Node* before);

  ChunkState& state_;
  std::unordered_map<const Value*, Pieces> pieces_;
  std::unordered_map<const Value*, Value*> wholes_;
  std::unordered_set<const Value*> retyped_;  // whose type is not the one its users were made for
};

}  // namespace gt
