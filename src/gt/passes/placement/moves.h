// Moving a tensor of a placed step from where it is to where it is needed, by functional collectives.
//
// As placement prices it (placement/pricing.h): first what makes the tensor smaller (each rank takes its
// shard, sums are scattered), then exchanges, then sums that all need, last what makes it larger; one
// collective for all axes along which the same happens. Shards that are not equally long are padded for
// a collective, which then is one for each piece, and trimmed after it. What all have becomes a sum without
// communication, after everything else: one rank contributes it, the others nothing.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "gt/passes/placement/node_maker.h"

namespace gt {

// A tensor where it is. `sizes` and `pieces` are those of the whole.
struct LocalTensor {
  Value* value = nullptr;
  Placed placed = {};
};

class Mover {
 public:
  // `open`: the pieces (Piece::id) whose size is a symbol.
  Mover(NodeMaker& make, std::set<int32_t> open) : make_(make), open_(std::move(open)) {}

  // What this rank has of a tensor of these sizes.
  Shape LocalSizes(const Shape& sizes, const placement::Pieces& pieces, const Placed& placed) const;

  // The tensor as it has to be.
  LocalTensor Move(LocalTensor tensor, const Shape& sizes, const placement::Pieces& pieces,
                   const Placed& to);

 private:
  // One move: a tensor on its way.
  class Way;
  LocalTensor MoveComplex(LocalTensor tensor, Shape sizes, placement::Pieces pieces,
                          const Placed& to);

  NodeMaker& make_;
  const std::set<int32_t> open_;
};

}  // namespace gt
