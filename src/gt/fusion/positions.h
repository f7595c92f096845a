// Where an element of a value is in other values: the indices of one shape from those of another. May write lines that
// divide, since not every index can be divided before the kernel runs.
#pragma once

#include <cstdint>

#include "gt/fusion/kernel_text.h"
#include "gt/ir/graph.h"

namespace gt::fusion {

// An argument that names a dimension, counted from the front.
size_t DimIndex(const Argument& argument, int64_t rank);

class Positions {
 public:
  explicit Positions(KernelText& text) : text_(text) {}

  // The same element of a row-major order under other sizes. Dimensions are compared from the front:
  // those that are the same in both shapes stay as they are.
  Position Regrouped(const Position& from, const Shape& sizes, const Shape& to);
  // Where an operand that is broadcast has the element.
  Position Broadcast(const Position& position, const Shape& from, const Shape& to) const;
  // Where the operand of a view has the element of a result.
  Position Viewed(const Node& view, int32_t result, const Position& position);

 private:
  Index::Divided Divide(const Index& index, const Dim& size);

  KernelText& text_;
};

}  // namespace gt::fusion
