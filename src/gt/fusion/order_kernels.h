// A stable counting sort of expert numbers, in two kernels. Integers alone: there is one right answer, whatever the
// order of additions. Text that the driver's compiler takes; kernels/expert_order.cc launches it.
#pragma once

#include <cstdint>

#include "gt/fusion/kernel_template.h"

namespace gt::fusion {

inline constexpr int kOrderThreads = 512;
inline constexpr int64_t kMostOrderedExperts = 512;

// How numbers are divided among blocks: `each` of them to a block, in their order. Every block reads what all have
// counted, so that there are not too many.
struct OrderShape {
  int64_t each = 0, blocks = 0;
};
OrderShape OrderShapeFor(int64_t count);

// How often each expert is among a block's numbers.
//   (numbers, partial counts, count, each)
RowKernel ExpertCountSource(int64_t experts);

// Where each number is when they are in the order of experts (to_rows), what is there then (to_slots), and how
// many there are of each expert.
//   (numbers, partial counts, to_slots, to_rows, counts, count, each, blocks)
RowKernel ExpertOrderSource(int64_t experts);

}  // namespace gt::fusion
