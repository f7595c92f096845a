// Placements that nobody would choose: every feasible one may come out.
#pragma once

#include <random>

#include "gt/placement/place.h"

namespace gt::testing {

// Labels by random costs, so that values are moved wherever they can be; only what is impossible stays
// forbidden.
inline placement::Placement RandomPlacement(const placement::PlaceProblem& problem, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  placement::LabelProblem labels = problem.Labels({});
  for (placement::Variable& variable : labels.variables) {
    for (double& cost : variable.costs) {
      if (cost < placement::kForbidden) cost = uniform(random);
    }
  }
  for (placement::CostMatrix& matrix : labels.matrices) {
    for (float& value : matrix.values) {
      if (value < static_cast<float>(placement::kForbidden)) {
        value = static_cast<float>(0.01 * uniform(random));
      }
    }
  }
  for (placement::Edge& edge : labels.edges) edge.factor = 1;
  placement::SolverOptions options;
  options.work_limit = 1e7;  // any labels will do
  placement::LabelSolution solution = Solve(labels, options);
  for (; !solution.feasible && options.work_limit < 1e10; solution = Solve(labels, options)) {
    options.work_limit *= 10;  // none was found yet
  }
  placement::Placement placement;
  placement.feasible = solution.feasible;
  placement.labels = solution.labels;
  return placement;
}

}  // namespace gt::testing
