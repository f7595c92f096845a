// All ways in which a node can be computed on a mesh: one way of sharding for each axis, taken from the
// operator's rule, with the layouts they ask of operands and give to results, and the time of a rank.
#pragma once

#include <functional>
#include <vector>

#include "gt/placement/dim_pieces.h"
#include "gt/placement/pricing.h"

namespace gt::placement {

struct Strategy {
  std::vector<Layout> operands;
  std::vector<Layout> results;
  double kernel_us = 0;
  double collective_us = 0;  // of what is exchanged or combined within the operator

  // Whether rows are with their experts along the axis.
  bool IsRouted(size_t axis) const;
};

// Whether a node may be sharded like this along an axis.
using RowFilter = std::function<bool(const PieceRow& row, int axis)>;

// Of a node of that class. The first: every rank does everything. Where there are too many, only those
// that way_limit.h allows.
std::vector<Strategy> StrategiesOf(const Node& node, const ClassPieces& pieces,
                                   SymbolValues symbols, const Pricing& pricing,
                                   const RowFilter& allows = nullptr);

// Of an input: where it may be. A rank has a range of each of its dimensions.
std::vector<Strategy> InputStrategies(const Pieces& pieces, const DeviceMesh& mesh);

}  // namespace gt::placement
