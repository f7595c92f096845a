// Linear programs of a few rows and some dozen columns, solved exactly: how to mix plans so that the
// mixture is cheapest, and at which prices no single one is better.
//
//   minimize   sum of cost[j] x[j]   subject to   sum of column[j] x[j] = right,   x >= 0
#pragma once

#include <vector>

namespace gt::placement {

struct LinearProgram {
  struct Column {
    double cost = 0;
    std::vector<double> entries;  // by row
  };
  std::vector<double> right;  // by row, at least 0
  std::vector<Column> columns;
};

struct LinearSolution {
  bool feasible = false;
  double value = 0;
  std::vector<double> amounts;  // by column
  std::vector<double> prices;   // by row: what one more of its right side would cost
};

// The simplex method. Deterministic; ends by Bland's rule where it might go in circles.
LinearSolution Minimize(const LinearProgram& program);

}  // namespace gt::placement
