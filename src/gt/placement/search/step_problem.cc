#include "gt/placement/search/step_problem.h"

#include <algorithm>

namespace gt::placement {

double StepTime::Total() const {
  double us = visible;
  for (size_t phase = 0; phase < kPhases; ++phase) us += std::max(kernels[phase], moves[phase]);
  return us;
}

double StepTime::Serial() const {
  double us = visible;
  for (size_t phase = 0; phase < kPhases; ++phase) us += kernels[phase] + moves[phase];
  return us;
}

double StepTime::At(const ByPhase& factors) const {
  double us = visible;
  for (size_t phase = 0; phase < kPhases; ++phase) {
    us += (1 - factors[phase]) * kernels[phase] + factors[phase] * moves[phase];
  }
  return us;
}

StepTime& StepTime::operator+=(const StepTime& other) {
  visible += other.visible;
  for (size_t phase = 0; phase < kPhases; ++phase) {
    kernels[phase] += other.kernels[phase];
    moves[phase] += other.moves[phase];
  }
  return *this;
}

double StepEdge::FactorAt(const ByPhase& factors) const {
  double factor = visible;
  for (size_t phase = 0; phase < kPhases; ++phase) factor += factors[phase] * moves[phase];
  return factor;
}

StepTime StepProblem::TimeOf(const std::vector<int32_t>& labels) const {
  StepTime time;
  for (size_t v = 0; v < variables.size(); ++v) {
    time += variables[v].times[static_cast<size_t>(labels[v])];
  }
  for (const StepEdge& edge : edges) {
    const double us = matrices[static_cast<size_t>(edge.matrix)].At(
        labels[static_cast<size_t>(edge.from)], labels[static_cast<size_t>(edge.to)]);
    if (us == kForbidden) return {.visible = kForbidden};
    time.visible += edge.visible * us;
    for (size_t phase = 0; phase < kPhases; ++phase) time.moves[phase] += edge.moves[phase] * us;
  }
  return time;
}

LabelProblem StepProblem::At(const ByPhase& factors) const {
  LabelProblem problem;
  problem.matrices = matrices;
  for (const StepVariable& of : variables) {
    std::vector<double>& costs = problem.variables.emplace_back().costs;
    costs.reserve(of.times.size());
    for (const StepTime& time : of.times) costs.push_back(time.At(factors));
  }
  for (const StepEdge& edge : edges) {
    problem.edges.push_back({edge.from, edge.to, edge.matrix, edge.FactorAt(factors)});
  }
  return problem;
}

}  // namespace gt::placement
