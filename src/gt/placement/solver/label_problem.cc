#include "gt/placement/solver/label_problem.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "gt/base/error.h"
#include "gt/placement/solver/problem_check.h"

namespace gt::placement {
namespace {

template <typename... Args>
void RequireSound(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) Fail(ErrorCode::kBadPlacementProblem, format, std::forward<Args>(args)...);
}

void CheckLiveRanges(const Variable& variable, size_t number) {
  int32_t end = std::numeric_limits<int32_t>::min();
  for (const LiveRange& range : variable.live) {
    RequireSound(range.begin <= range.end && range.begin >= end && range.count >= 0,
                 "variable {}: its live ranges are not disjoint and ascending", number);
    end = range.end;
  }
}

void CheckVariable(const Variable& variable, size_t number) {
  RequireSound(!variable.costs.empty(), "variable {} has no labels", number);
  for (const double cost : variable.costs) {
    RequireSound(cost >= 0, "variable {}: a cost of {} is not at least 0", number, cost);
  }
  RequireSound(variable.usage.empty() || variable.usage.size() == variable.costs.size(),
               "variable {}: {} labels, but the usage of {}", number, variable.costs.size(),
               variable.usage.size());
  for (const int64_t usage : variable.usage) {
    RequireSound(usage >= 0 && usage <= kLargestUsage, "variable {}: a usage of {} is not possible",
                 number, usage);
  }
  CheckLiveRanges(variable, number);
}

void CheckMatrix(const CostMatrix& matrix, size_t number) {
  RequireSound(matrix.rows >= 0 && matrix.columns >= 0 &&
                   matrix.values.size() ==
                       static_cast<size_t>(matrix.rows) * static_cast<size_t>(matrix.columns),
               "matrix {}: {} x {}, but {} values", number, matrix.rows, matrix.columns,
               matrix.values.size());
  for (const float value : matrix.values) {
    RequireSound(value >= 0, "matrix {}: a cost of {} is not at least 0", number, value);
  }
}

void CheckEdge(const LabelProblem& problem, const Edge& edge, size_t number) {
  const auto exists = [](int32_t index, size_t count) {
    return index >= 0 && static_cast<size_t>(index) < count;
  };
  RequireSound(exists(edge.from, problem.variables.size()) &&
                   exists(edge.to, problem.variables.size()) && edge.from != edge.to,
               "edge {}: from variable {} to variable {} of {}", number, edge.from, edge.to,
               problem.variables.size());
  RequireSound(exists(edge.matrix, problem.matrices.size()), "edge {}: matrix {} of {}", number,
               edge.matrix, problem.matrices.size());
  RequireSound(edge.factor >= 0 && std::isfinite(edge.factor),
               "edge {}: a factor of {} is not at least 0", number, edge.factor);
  const CostMatrix& matrix = problem.matrices[static_cast<size_t>(edge.matrix)];
  const size_t rows = problem.variables[static_cast<size_t>(edge.from)].costs.size();
  const size_t columns = problem.variables[static_cast<size_t>(edge.to)].costs.size();
  RequireSound(
      static_cast<size_t>(matrix.rows) == rows && static_cast<size_t>(matrix.columns) == columns,
      "edge {}: its matrix is {} x {}, its variables have {} and {} labels", number, matrix.rows,
      matrix.columns, rows, columns);
}

}  // namespace

void CheckProblem(const LabelProblem& problem) {
  for (size_t v = 0; v < problem.variables.size(); ++v) CheckVariable(problem.variables[v], v);
  for (size_t m = 0; m < problem.matrices.size(); ++m) CheckMatrix(problem.matrices[m], m);
  for (size_t e = 0; e < problem.edges.size(); ++e) CheckEdge(problem, problem.edges[e], e);
}

double EdgeCost(const LabelProblem& problem, const Edge& edge, int32_t from, int32_t to) {
  const double value = problem.matrices[static_cast<size_t>(edge.matrix)].At(from, to);
  return value == kForbidden ? kForbidden : value * edge.factor;  // 0 * infinity would be no number
}

double CostOf(const LabelProblem& problem, const std::vector<int32_t>& labels) {
  double cost = 0;
  for (size_t v = 0; v < problem.variables.size(); ++v) {
    cost += problem.variables[v].costs[static_cast<size_t>(labels[v])];
  }
  for (const Edge& edge : problem.edges) {
    cost += EdgeCost(problem, edge, labels[static_cast<size_t>(edge.from)],
                     labels[static_cast<size_t>(edge.to)]);
  }
  return cost;
}

int64_t PeakUsage(const LabelProblem& problem, const std::vector<int32_t>& labels) {
  std::vector<std::pair<int32_t, int64_t>> changes;  // when, and by how much
  for (size_t v = 0; v < problem.variables.size(); ++v) {
    const Variable& variable = problem.variables[v];
    if (variable.usage.empty()) continue;
    const int64_t usage = variable.usage[static_cast<size_t>(labels[v])];
    for (const LiveRange& range : variable.live) {
      if (range.begin == range.end) continue;
      changes.emplace_back(range.begin, usage * range.count);
      changes.emplace_back(range.end, -usage * range.count);
    }
  }
  // What ends at a moment makes room for what begins then: sorted, the smaller change comes first.
  std::ranges::sort(changes);
  int64_t usage = 0;
  int64_t peak = 0;
  for (const auto& [moment, change] : changes) peak = std::max(peak, usage += change);
  return peak;
}

}  // namespace gt::placement
