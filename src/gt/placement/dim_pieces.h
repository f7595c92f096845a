// Which pieces the dimensions of a step's tensors have, and how operators shard them.
//
// A view that makes [batch * sequence, width] of [batch, sequence, width] hides two dimensions in one.
// Both stay visible here as pieces of it: every view says at which strides the dimensions on its two
// sides begin, and operators carry these cuts from tensor to tensor. Views then need no rules of their
// own, since the pieces on both sides are the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gt/placement/folding.h"
#include "gt/placement/layout.h"

namespace gt::placement {

// A way of sharding along one axis, by pieces (as ShardingRow is by dimensions).
struct PieceRow {
  std::vector<ShardState> operands;
  std::vector<ShardState> results;
  ShardMethod method = ShardMethod::kPlain;
  int8_t statistics = 0;
  // The number of shards must divide this; 0: any number.
  int64_t multiple = 0;
  // Cuts something: each rank has less to do. Not so ways that only pass partial sums on.
  bool divides = true;
  // The rows of this operand or result travel between ranks, all to all: operands count from 0, the
  // first result is -1; nothing travels: kNothing.
  static constexpr int32_t kNothing = -2;
  int32_t exchanged = kNothing;
};

// Of one class of a folding.
struct ClassPieces {
  std::vector<Pieces> operands;
  std::vector<Pieces> results;
  std::vector<PieceRow> rows;  // the first: every rank does everything
  bool has_rule = true;
  // Rows in the order of their experts, or where they are in it: what one rank has of them is not what
  // it would have of the whole, so that they cannot be moved.
  bool routed = false;
};

std::vector<ClassPieces> FindPieces(const Folding& folding, SymbolValues symbols);

// What is known of a step on every mesh.
struct FoldedStep {
  Folding folding;
  std::vector<ClassPieces> pieces;  // by class
};
// Numbers the nodes.
FoldedStep FoldStep(Graph& graph, bool fold = true);

}  // namespace gt::placement
