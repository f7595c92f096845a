// What the parts of the solver share about the problem as it is given.
#pragma once

#include <cstdint>

#include "gt/placement/solver/label_problem.h"

namespace gt::placement {

// Sums over a million variables stay far below what 64 bits hold.
inline constexpr int64_t kLargestUsage = int64_t{1} << 46;

// Throws BadPlacementProblem, naming the first variable, matrix or edge that makes no sense.
void CheckProblem(const LabelProblem& problem);

double EdgeCost(const LabelProblem& problem, const Edge& edge, int32_t from, int32_t to);

}  // namespace gt::placement
