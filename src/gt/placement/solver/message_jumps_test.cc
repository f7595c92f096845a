#include "gt/placement/solver/message_jumps.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gt/placement/solver/core_graph.h"
#include "gt/placement/solver/label_graph.h"
#include "gt/testing/label_problems.h"

namespace gt::message_jumps_test {
namespace {

using placement::CoreGraph;
using placement::LabelGraph;
using placement::LabelProblem;
using placement::MessageJumps;
using placement::MessagePassing;

// What as many sweeps reach with jumps and without.
struct Bounds {
  double jumping = 0, plain = 0;
};

// Bounds hold whatever is tried, and what was tried without effect is taken back.
Bounds CheckBounds(const LabelProblem& problem) {
  const LabelGraph graph = LabelGraph::From(problem);
  const CoreGraph core(graph, /*narrow=*/false);
  const placement::LabelSolution solution = Solve(problem);
  MessagePassing plain(core, graph), jumping(core, graph);
  double best = -placement::kForbidden;
  for (const int sweeps : {11, 40}) {
    MessageJumps jumps(jumping);
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      plain.Sweep();
      jumping.Sweep();
      EXPECT_LE(jumping.bound(), solution.cost + 1e-9 * (1 + solution.cost));
      jumps.AfterSweep();
      if (!jumps.trying()) best = std::max(best, jumping.bound());
    }
  }
  EXPECT_GE(jumping.bound(), best - 1e-9 * (1 + std::abs(best)));
  return {jumping.bound(), plain.bound()};
}

TEST(MessageJumps, SaveSweeps) {
  double jumping = 0, plain = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const Bounds bounds = CheckBounds(testing::GridLabelProblem(seed, 6, 6, /*with_memory=*/false));
    jumping += bounds.jumping;
    plain += bounds.plain;
  }
  EXPECT_GT(jumping, plain);
}

}  // namespace
}  // namespace gt::message_jumps_test
