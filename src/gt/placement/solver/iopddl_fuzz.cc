// Feeds arbitrary bytes to the reader of placement problems. What it accepts must be sound, and must
// be solved or given up in time without a crash. Run with ./gt fuzz iopddl 600.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gt/base/error.h"
#include "gt/placement/solver/iopddl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using gt::placement::LabelProblem;
  try {
    const LabelProblem problem = gt::placement::ParseIopddl(
        std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    gt::placement::SolverOptions options;
    options.time_limit_s = 0.05;
    const auto solution = gt::placement::Solve(problem, options);
    if (!solution.feasible) return 0;
    if (CostOf(problem, solution.labels) != solution.cost ||
        PeakUsage(problem, solution.labels) > problem.usage_limit ||
        solution.lower_bound > solution.cost) {
      std::abort();
    }
  } catch (const gt::Error& error) {
    if (error.code() != gt::ErrorCode::kBadPlacementProblem) throw;
  }
  return 0;
}
