// A problem of labels whose cost is the time of a train step. Moves of parameters and gradients run
// beside the kernels of their phase, the forward or the backward, so that a phase takes the longer of
// the two:
//
//   step = visible + max(forward kernels, forward moves) + max(backward kernels, backward moves)
//
// which is no sum over labels. For factors f and b between 0 and 1 the weighted sum
//
//   visible + (1 - f) forward kernels + f forward moves + (1 - b) backward kernels + b backward moves
//
// is one, and never more than the step takes.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "gt/placement/solver/label_problem.h"

namespace gt::placement {

enum Phase : uint8_t { kForwardPhase, kBackwardPhase };
inline constexpr size_t kPhases = 2;
using ByPhase = std::array<double, kPhases>;

// What a labelling, a label or a pair of labels takes, in microseconds.
struct StepTime {
  double visible = 0;  // what nothing hides
  ByPhase kernels = {}, moves = {};

  double Total() const;                     // of the step
  double Serial() const;                    // if nothing were hidden
  double At(const ByPhase& factors) const;  // the weighted sum
  StepTime& operator+=(const StepTime& other);
};

struct StepVariable {
  std::vector<StepTime> times;  // by label; a visible time of infinity forbids it
  std::vector<int64_t> usage;   // as in Variable
  std::vector<LiveRange> live;
};

struct StepEdge {
  int32_t from = 0;  // rows of the matrix
  int32_t to = 0;    // columns
  int32_t matrix = 0;
  double visible = 0;  // how often the move is made, and when
  ByPhase moves = {};
  double FactorAt(const ByPhase& factors) const;
};

struct StepProblem {
  std::vector<StepVariable> variables;
  std::vector<StepEdge> edges;
  std::vector<CostMatrix> matrices;
  int64_t usage_limit = std::numeric_limits<int64_t>::max();

  StepTime TimeOf(const std::vector<int32_t>& labels) const;
  // The weighted sum, without memory.
  LabelProblem At(const ByPhase& factors) const;
};

}  // namespace gt::placement
