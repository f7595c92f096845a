// The problem that placement comes down to: every variable takes one of its labels; labels cost
// something, pairs of labels of neighbouring variables cost something, and what the labels use of
// the memory must fit at every moment.
//
//   minimize   sum of unary[v][x_v]  +  sum over edges of matrix[x_u][x_v]
//   subject to for every moment t: sum over variables alive at t of count * usage[v][x_v] <= limit
//
// Costs are at least 0; infinity forbids a label or a pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace gt::placement {

inline constexpr double kForbidden = std::numeric_limits<double>::infinity();

// A matrix of costs, shared by all edges that look alike. Row-major.
struct CostMatrix {
  int32_t rows = 0;
  int32_t columns = 0;
  std::vector<float> values;
  float At(int32_t row, int32_t column) const {
    return values[static_cast<size_t>(row) * static_cast<size_t>(columns) +
                  static_cast<size_t>(column)];
  }
};

// A variable is alive in [begin, end), `count` times over (a layer that stands for many).
struct LiveRange {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t count = 1;
};

struct Variable {
  std::vector<double> costs;    // by label
  std::vector<int64_t> usage;   // bytes by label; empty: none
  std::vector<LiveRange> live;  // disjoint, ascending
};

struct Edge {
  int32_t from = 0;  // rows of the matrix
  int32_t to = 0;    // columns; another variable than `from`
  int32_t matrix = 0;
  double factor = 1;  // on the matrix's values
};

struct LabelProblem {
  std::vector<Variable> variables;
  std::vector<Edge> edges;
  std::vector<CostMatrix> matrices;
  int64_t usage_limit = std::numeric_limits<int64_t>::max();
};

class RememberedMessages;

struct SolverOptions {
  double time_limit_s = std::numeric_limits<double>::infinity();
  int threads = 1;             // results do not depend on it
  double relative_gap = 1e-9;  // good enough
  std::vector<int32_t> start;  // labels to improve on; empty: none
  // Labellings that cost this much or more are of no interest: the search of a part ends once its bound
  // says so, with or without a labelling.
  double cutoff = kForbidden;
  // A labelling that costs less than this ends the search, whatever the bound is by then.
  double enough = -kForbidden;
  // Entries of tables that the search may go over; it ends with what it has. Unlike a time limit this
  // gives the same answer on every machine.
  double work_limit = kForbidden;
  // Of problems with the same variables that were solved before; null: none. Gets this one's.
  RememberedMessages* messages = nullptr;
  // Gets by variable and label what labellings with that label cost at least, up to the cutoff; null: not
  // wanted. Of problems without memory.
  std::vector<std::vector<double>>* label_bounds = nullptr;
};

struct LabelSolution {
  bool feasible = false;
  std::vector<int32_t> labels;
  double cost = kForbidden;
  double lower_bound = 0;  // no labelling costs less; at most the cutoff
  double work = 0;         // entries of tables that the search went over
  double gap() const { return cost <= 0 ? 0 : cost < kForbidden ? (cost - lower_bound) / cost : 1; }
};

// Cost of a labelling, infinite if it uses something forbidden; and what it uses at the worst moment.
double CostOf(const LabelProblem& problem, const std::vector<int32_t>& labels);
int64_t PeakUsage(const LabelProblem& problem, const std::vector<int32_t>& labels);

// Deterministic without a time limit. Throws BadPlacementProblem for a malformed problem.
LabelSolution Solve(const LabelProblem& problem, const SolverOptions& options = {});

}  // namespace gt::placement
