// The placement solver on problems in the IOPDDL format, reading included:
//
//   placement_solver_bench FILE[:SECONDS[:BEST]]...
//
// SECONDS is the time limit (60 if not given), BEST a known cost to compare with.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gt/base/error.h"
#include "gt/placement/solver/iopddl.h"
#include "gt/placement/solver/label_problem.h"

namespace {

using gt::placement::LabelProblem;
using gt::placement::LabelSolution;

constexpr double kReserve = 0.5;  // for writing the answer, and a machine that others use as well

struct Instance {
  std::string file;
  double seconds = 60;
  double best = 0;  // 0: not known
};

Instance ParseInstance(const std::string& argument) {
  Instance instance;
  const size_t first = argument.find(':');
  instance.file = argument.substr(0, first);
  if (first == std::string::npos) return instance;
  const size_t second = argument.find(':', first + 1);
  instance.seconds = std::atof(argument.substr(first + 1, second - first - 1).c_str());
  if (second != std::string::npos) instance.best = std::atof(argument.c_str() + second + 1);
  return instance;
}

void RunInstance(const Instance& instance) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const LabelProblem problem = gt::placement::ReadIopddl(instance.file);
  gt::placement::SolverOptions options;
  options.time_limit_s = instance.seconds - elapsed() - kReserve;
  const LabelSolution solution = gt::placement::Solve(problem, options);
  const double seconds = elapsed();
  const std::string ratio =
      instance.best > 0 ? fmt::format("{:.4f}", solution.cost / instance.best) : "-";
  fmt::print("{:<40} {:>9} {:>9} {:>18.0f} {:>18.0f} {:>8.4f} {:>8.2f} {:>8}\n", instance.file,
             problem.variables.size(), problem.edges.size(), solution.cost, solution.lower_bound,
             solution.gap(), seconds, solution.feasible ? ratio : "none");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print("give problems in the IOPDDL format: FILE[:SECONDS[:BEST]]...\n");
    return 0;
  }
  fmt::print("{:<40} {:>9} {:>9} {:>18} {:>18} {:>8} {:>8} {:>8}\n", "file", "variables", "edges",
             "cost", "lower bound", "gap", "seconds", "ratio");
  try {
    for (int i = 1; i < argc; ++i) RunInstance(ParseInstance(argv[i]));
  } catch (const gt::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
