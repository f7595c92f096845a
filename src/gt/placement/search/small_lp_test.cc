#include "gt/placement/search/small_lp.h"

#include <gtest/gtest.h>

#include <random>

namespace gt::small_lp_test {
namespace {

using placement::LinearProgram;
using placement::LinearSolution;
using placement::Minimize;

// Prices prove the optimum: no column is worth more than it costs, and what is bought costs the same.
void ExpectProven(const LinearProgram& program, const LinearSolution& solution) {
  ASSERT_TRUE(solution.feasible);
  double bought = 0;
  for (size_t i = 0; i < program.right.size(); ++i) {
    bought += solution.prices[i] * program.right[i];
    double amount = 0;
    for (size_t j = 0; j < program.columns.size(); ++j) {
      amount += program.columns[j].entries[i] * solution.amounts[j];
    }
    EXPECT_NEAR(amount, program.right[i], 1e-7);
  }
  for (const LinearProgram::Column& column : program.columns) {
    double worth = 0;
    for (size_t i = 0; i < program.right.size(); ++i) {
      worth += solution.prices[i] * column.entries[i];
    }
    EXPECT_LE(worth, column.cost + 1e-6);
  }
  EXPECT_NEAR(bought, solution.value, 1e-6);
}

TEST(SmallLp, FindsTheBestMixture) {
  // One of two plans, of which the cheap one has 3 too much and the dear one 1 too little.
  const LinearProgram program{{1, 0}, {{10, {1, 3}}, {20, {1, -1}}, {0, {0, 1}}}};
  const LinearSolution solution = Minimize(program);
  ExpectProven(program, solution);
  EXPECT_NEAR(solution.value, 17.5, 1e-9);
  EXPECT_NEAR(solution.amounts[0], 0.25, 1e-9);
  EXPECT_NEAR(solution.prices[1], -2.5, 1e-9);
}

TEST(SmallLp, ProvesRandomOptima) {
  std::mt19937_64 random(1);
  const auto number = [&] { return static_cast<double>(random() % 2001) / 1000 - 1; };
  for (int round = 0; round < 200; ++round) {
    const size_t rows = 1 + random() % 6;
    LinearProgram program;
    program.right.assign(rows, 0);
    program.right[0] = 1;
    for (size_t j = 0; j < 40; ++j) {
      LinearProgram::Column& column = program.columns.emplace_back();
      column.cost = 2 + number();
      column.entries.push_back(1);
      for (size_t i = 1; i < rows; ++i) column.entries.push_back(number());
    }
    for (size_t i = 1; i < rows; ++i) {  // a way out of every row
      for (const double sign : {1.0, -1.0}) {
        LinearProgram::Column& column = program.columns.emplace_back();
        column.cost = 5;
        column.entries.assign(rows, 0);
        column.entries[i] = sign;
      }
    }
    SCOPED_TRACE(round);
    ExpectProven(program, Minimize(program));
  }
}

TEST(SmallLp, SaysThatNothingFits) { EXPECT_FALSE(Minimize({{1, 1}, {{1, {1, 0}}}}).feasible); }

}  // namespace
}  // namespace gt::small_lp_test
