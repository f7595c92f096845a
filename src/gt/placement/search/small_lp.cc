#include "gt/placement/search/small_lp.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gt::placement {
namespace {

constexpr int kSteepestPivots = 500, kMostPivots = 5000;
constexpr double kSmall = 1e-11;

// Rows of the program with an artificial column for each, which nothing but a lack of others keeps in
// use, and the right side last.
class Tableau {
 public:
  explicit Tableau(const LinearProgram& program)
      : columns_(program.columns.size()), rows_(program.right.size()) {
    double largest = 1;
    for (const LinearProgram::Column& column : program.columns) {
      cost_.push_back(column.cost);
      largest = std::max(largest, std::abs(column.cost));
    }
    constexpr double kForbiddingly = 1e5;
    cost_.resize(columns_ + rows_, kForbiddingly * largest);
    enough_ = kSmall * largest;
    for (size_t i = 0; i < rows_; ++i) {
      std::vector<double>& row = entries_.emplace_back(columns_ + rows_ + 1, 0);
      for (size_t j = 0; j < columns_; ++j) row[j] = program.columns[j].entries[i];
      row[columns_ + i] = 1;
      row.back() = program.right[i];
      basis_.push_back(columns_ + i);
    }
  }

  void Solve() {
    for (int pivot = 0; pivot < kMostPivots; ++pivot) {
      const size_t column = Entering(/*first=*/pivot >= kSteepestPivots);
      if (column == kNone) return;
      const size_t row = Leaving(column);
      if (row == kNone) return;
      Pivot(row, column);
    }
  }

  LinearSolution Read() const {
    LinearSolution solution{true, 0, std::vector<double>(columns_, 0), {}};
    for (size_t i = 0; i < rows_; ++i) {
      const double amount = entries_[i].back();
      if (basis_[i] < columns_) {
        solution.amounts[basis_[i]] = amount;
        solution.value += cost_[basis_[i]] * amount;
      } else if (amount > 1e-9) {
        solution.feasible = false;
      }
      double price = 0;
      for (size_t k = 0; k < rows_; ++k) price += cost_[basis_[k]] * entries_[k][columns_ + i];
      solution.prices.push_back(price);
    }
    return solution;
  }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  double Reduced(size_t column) const {
    double cost = cost_[column];
    for (size_t i = 0; i < rows_; ++i) cost -= cost_[basis_[i]] * entries_[i][column];
    return cost;
  }
  size_t Entering(bool first) const {
    size_t best = kNone;
    double least = -enough_;
    for (size_t j = 0; j < cost_.size(); ++j) {
      const double reduced = Reduced(j);
      if (reduced >= least) continue;
      best = j;
      least = reduced;
      if (first) break;
    }
    return best;
  }
  size_t Leaving(size_t column) const {
    size_t best = kNone;
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < rows_; ++i) {
      if (entries_[i][column] <= kSmall) continue;
      const double ratio = entries_[i].back() / entries_[i][column];
      if (ratio < least || (ratio == least && basis_[i] < basis_[best])) {
        best = i;
        least = ratio;
      }
    }
    return best;
  }
  void Pivot(size_t row, size_t column) {
    const double by = entries_[row][column];
    for (double& entry : entries_[row]) entry /= by;
    for (size_t i = 0; i < rows_; ++i) {
      const double times = entries_[i][column];
      if (i == row || times == 0) continue;
      for (size_t j = 0; j < entries_[i].size(); ++j) {
        entries_[i][j] -= times * entries_[row][j];
      }
    }
    basis_[row] = column;
  }

  const size_t columns_, rows_;
  double enough_ = 0;
  std::vector<double> cost_;  // by column, artificial ones last
  std::vector<std::vector<double>> entries_;
  std::vector<size_t> basis_;  // by row
};

}  // namespace

LinearSolution Minimize(const LinearProgram& program) {
  Tableau tableau(program);
  tableau.Solve();
  return tableau.Read();
}

}  // namespace gt::placement
