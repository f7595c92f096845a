// What operators do to the order of elements along a dimension: what passes need that cut a
// dimension into ranges and must know which elements are in them.
#pragma once

#include <cstdint>

#include "gt/ir/operator.h"

namespace gt {

enum class DimOrder : uint8_t {
  // A dimension of a result that is as long as one of an operand has its elements in the operand's
  // order. Whole dimensions are reduced, added or change places; elements along them do not.
  kKept,
  // The elements in row-major order, under other sizes: view, reshape.
  kRegrouped,
  // As kKept, except along the dimensions that the argument dim (or dims) names: sort, flip.
  kReordered,
  // The first operand's elements where the indices (all other operands) say. A dimension that
  // indices have is in their order, any other one in that of the first operand.
  kLookedUp,
  // The first operand with elements replaced, or added to, where the indices say.
  kWritten,
  // All elements are equal: zeros, full.
  kConstant,
  // Made from sizes alone; an element depends on its position and nothing else: arange, rand.
  kNumbered,
  // Dimension 0 has the parts of all ranks, or a part of it: all_gather, reduce_scatter, all_to_all.
  kAcrossRanks,
  // Nothing is known.
  kUnknown,
};

DimOrder DimOrderOf(const Operator& op);

// Whether somebody has thought about the operator. Those not in the table are kUnknown.
bool HasDimOrder(const Operator& op);

}  // namespace gt
