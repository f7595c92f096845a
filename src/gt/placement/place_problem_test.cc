#include "gt/placement/place_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gt/base/error.h"
#include "gt/ir/text.h"
#include "gt/sim/cluster.h"
#include "gt/testing/layered_step.h"
#include "gt/testing/random_placement.h"
#include "gt/testing/small_placement.h"

namespace gt::place_problem_test {
namespace {

using namespace placement;
using gt::testing::LayeredStep;

// A step on a mesh of H100, and its best plan with all costs in full.
struct Placed {
  Placed(const std::string& text, const std::string& mesh, ProblemOptions options = {},
         CostFormulas formulas = CostFormulas::kSimulated)
      : graph(Parse(text, "test.gtir")),
        links(ReadCluster(GT_SOURCE_DIR "/configs/clusters/h100.toml")),
        pricing(DeviceMesh::Parse(mesh), links, SpeedOf("hopper"), formulas),
        problem(*graph, pricing, std::move(options)),
        solution(Solve(problem.Labels({}))) {}

  size_t IndexOf(const std::string& name) const {
    for (size_t i = 0; i < problem.folding().classes.size(); ++i) {
      if (problem.folding().classes[i].name() == name) return i;
    }
    ADD_FAILURE() << "no class begins with " << name;
    return 0;
  }
  const Strategy& StrategyOf(size_t i) const {
    return problem.strategies()[i][static_cast<size_t>(solution.labels[i])];
  }
  std::string ResultOf(const std::string& name) const {
    const size_t i = IndexOf(name);
    return ToString(StrategyOf(i).results[0], problem.pieces()[i].results[0], pricing.mesh());
  }
  Move MoveAlong(const PlacedEdge& edge) const {
    return problem.MoveOf(edge, solution.labels[static_cast<size_t>(edge.from)],
                          solution.labels[static_cast<size_t>(edge.to)]);
  }

  std::unique_ptr<Graph> graph;
  LinkModel links;
  Pricing pricing;
  PlaceProblem problem;
  LabelSolution solution;
};

// The batch is along the first axis and the sequence along the second.
std::vector<Pin> ActivationPins(const std::string& mesh) {
  const int axes = DeviceMesh::Parse(mesh).axes();
  const std::string layout = axes == 1 ? "S(0)" : axes == 2 ? "S(0)S(1)" : "S(0)S(1)R";
  return {{"x", layout}, {"dy", layout}, {"y", layout}, {"dx", layout}};
}

// Equal layers placed once cost as much as all of them placed freely.
TEST(PlaceProblem, FoldedOptimumEqualsTheUnfolded) {
  for (const CostFormulas formulas : {CostFormulas::kSimulated, CostFormulas::kAutoparallel}) {
    for (const char* mesh : {"8", "4x8", "2x2x2"}) {
      for (const int layers : {2, 3, 4}) {
        const std::string text = LayeredStep{.layers = layers}.Text();
        const Placed folded(text, mesh, {.pins = ActivationPins(mesh)}, formulas);
        const Placed unfolded(text, mesh, {.fold = false, .pins = ActivationPins(mesh)}, formulas);
        ASSERT_TRUE(folded.solution.feasible);
        EXPECT_LT(folded.problem.variables().size(), unfolded.problem.variables().size());
        EXPECT_NEAR(folded.solution.cost, unfolded.solution.cost, 1e-6 * unfolded.solution.cost)
            << layers << " layers on " << mesh;
      }
    }
  }
}

// Whatever is asked for, a gradient ends where its parameter is.
TEST(PlaceProblem, GradientsEndInTheLayoutOfTheirParameter) {
  for (const char* pin : {"S(0)R", "RS(1)", "S(1)S(0)", "RR"}) {
    const Placed placed(LayeredStep{}.Text(), "4x8", {.pins = {{"w0", pin}}});
    ASSERT_TRUE(placed.solution.feasible) << pin;
    EXPECT_EQ(placed.ResultOf("w0"), pin);
    bool seen = false;
    for (const PlacedEdge& edge : placed.problem.edges()) {
      if (edge.to != static_cast<int32_t>(placed.IndexOf("w0"))) continue;
      seen = true;
      EXPECT_LT(placed.MoveAlong(edge).us, kForbidden);
      EXPECT_EQ(
          placed.problem.TargetLayout(edge, placed.solution.labels[static_cast<size_t>(edge.to)]),
          placed.StrategyOf(placed.IndexOf("w0")).results[0]);
    }
    EXPECT_TRUE(seen);
  }
}

// Sums of gradients run beside the rest of the backward. What a gradient is made of may be used by nothing
// else, but the product waits for it.
TEST(PlaceProblem, OnlyGradientsLeaveWhileKernelsRun) {
  const Placed placed(testing::SmallStep(2, 4096, 64), "8");
  int gradients = 0, activations = 0;
  for (const PlacedEdge& edge : placed.problem.edges()) {
    const FoldedClass& from =
        placed.problem.folding().classes[static_cast<size_t>(edge.class_index)];
    if (from.node == nullptr) continue;
    const std::string& name = from.name();
    if (name.starts_with("g")) {
      ++gradients;
      EXPECT_EQ(edge.visible, 0) << name;
      EXPECT_EQ(edge.backward, 1) << name;
    } else if (name.starts_with("xt")) {
      ++activations;
      EXPECT_EQ(edge.visible, 1) << name;
    }
  }
  EXPECT_GT(gradients, 0);
  EXPECT_GT(activations, 0);
}

// No pass starts an exchange of a parameter ahead of its use, or lets that of a gradient end later.
TEST(PlaceProblem, KernelsWaitForExchanges) {
  const Placed placed(LayeredStep{}.Text(), "4x8");
  int exchanges = 0, others = 0;
  for (const PlacedEdge& edge : placed.problem.edges()) {
    if (edge.forward + edge.backward == 0) continue;
    const auto labels = [&](int32_t variable) {
      const PlacedVariable& of = placed.problem.variables()[static_cast<size_t>(variable)];
      return static_cast<int32_t>(
          of.result >= 0 ? of.layouts.size()
                         : placed.problem.strategies()[static_cast<size_t>(of.class_index)].size());
    };
    for (int32_t from = 0; from < labels(edge.from); ++from) {
      for (int32_t to = 0; to < labels(edge.to); ++to) {
        const Move move = placed.problem.MoveOf(edge, from, to);
        if (move.us == kForbidden || move.count == 0) continue;
        const bool exchanges_shards =
            std::any_of(move.steps.begin(), move.steps.begin() + move.count,
                        [](const Step& step) { return step.kind == Collective::kAllToAll; });
        if (exchanges_shards) EXPECT_FALSE(placed.problem.RunsBesideKernels(edge, move));
        ++(exchanges_shards ? exchanges : others);
        if (!exchanges_shards && move.count == 1) {
          const bool sum = move.steps[0].kind != Collective::kAllGather;
          const bool parameter = placed.problem.made_of_parameters(edge.class_index);
          EXPECT_EQ(placed.problem.RunsBesideKernels(edge, move), sum != parameter);
        }
      }
    }
  }
  EXPECT_GT(exchanges, 0);
  EXPECT_GT(others, 0);
}

// What a plan is said to take is what the search compared it by.
TEST(PlaceProblem, PlansCostWhatTheSearchPricesThemAt) {
  const Placed placed(LayeredStep{}.Text(), "4x8");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<int32_t> labels = testing::RandomPlacement(placed.problem, seed).labels;
    const double searched = placed.problem.Step().TimeOf(labels).Total();
    EXPECT_NEAR(CostOf(placed.problem, labels).step_us(/*overlap=*/true), searched,
                1e-5 * searched);
  }
}

// FSDP makes gradients of parts of the batch: neither is the batch gathered for them, nor is it cut by
// features.
TEST(PlaceProblem, LayoutsByHandMakeGradientsOfPartsOfTheBatch) {
  const Placed placed(testing::SmallStep(2, 64, 4096), "8", {.axes = {AxisUse::kShard}});
  ASSERT_TRUE(placed.solution.feasible);
  for (const Strategy& strategy : placed.problem.strategies()[placed.IndexOf("g1")]) {
    for (const placement::Layout& operand : strategy.operands) {
      EXPECT_TRUE(operand[0] < 0 || strategy.results[0][0] == kPartial);
    }
  }
}

// With every parameter cut as finely as possible no plan keeps one whole, and it is gathered after the
// cast to bf16 and its gradient summed after the cast to f32.
TEST(PlaceProblem, CastsComeBeforeGathersAndSums) {
  const Placed placed(LayeredStep{}.Text(), "8", {.finest_parameters = true},
                      CostFormulas::kAutoparallel);
  ASSERT_TRUE(placed.solution.feasible);
  EXPECT_TRUE(placed.ResultOf("w0").starts_with("S("));
  const auto w = static_cast<int32_t>(placed.IndexOf("w0"));
  const auto dw_mm = static_cast<int32_t>(placed.IndexOf("dw_mm1"));
  int casts = 0;
  for (const PlacedEdge& edge : placed.problem.edges()) {
    if (edge.class_index != w && edge.class_index != dw_mm) continue;
    ++casts;
    EXPECT_TRUE(edge.stays);
    EXPECT_EQ(placed.MoveAlong(edge).count, 0);
  }
  EXPECT_EQ(casts, 2);
}

// A conversion in the middle of the backward is no cast of a gradient: sums before it are allowed.
TEST(PlaceProblem, ConversionsOfActivationsMayFollowSums) {
  const Placed placed(R"(graph @g(%w: param "w" bf16[64, 64], %x: input "x" bf16[64, 64]) {
    %y = aten::mm(%x, %w) : bf16[64, 64] {phase = backward}
    %f = aten::_to_copy(%y, dtype = f32) : f32[64, 64] {phase = backward}
    %z = aten::mul.Tensor(%f, %f) : f32[64, 64] {phase = backward}
    %dw = aten::_to_copy(%z, dtype = bf16) : bf16[64, 64] {phase = backward}
    return gradient "w" %dw
  })",
                      "8");
  for (const PlacedEdge& edge : placed.problem.edges()) EXPECT_FALSE(edge.stays);
}

// A node that takes the same value twice pays for one move: the value is kept in one layout.
TEST(PlaceProblem, DuplicateArgumentsAreTied) {
  const Placed placed(R"(graph @g(%x: input "x" f32[4096, 4096]) {
    %y = aten::mul.Tensor(%x, %x) : f32[4096, 4096]
    return result "y" %y
  })",
                      "8", {.pins = {{"x", "S(0)"}, {"y", "S(1)"}}});
  ASSERT_TRUE(placed.solution.feasible);
  const Strategy& product = placed.StrategyOf(placed.IndexOf("y"));
  EXPECT_EQ(product.operands[0], product.operands[1]);
  int moves = 0;
  for (const PlacedEdge& edge : placed.problem.edges()) moves += placed.MoveAlong(edge).count;
  EXPECT_EQ(moves, 1);
}

// A result is whole on every rank unless it is pinned; a pinned one is paid for if it is moved.
TEST(PlaceProblem, ResultsAreWholeUnlessPinned) {
  const std::string text = R"(graph @g(%x: input "x" f32[4096, 4096]) {
    %a = aten::relu(%x) : f32[4096, 4096]
    return result "y" %a
  })";
  const Placed whole(text, "8", {.pins = {{"x", "S(0)"}}});
  const Placed cut(text, "8", {.pins = {{"x", "S(0)"}, {"y", "S(0)"}}});
  EXPECT_GT(whole.solution.cost, cut.solution.cost + 10);
  EXPECT_EQ(cut.ResultOf("a"), "S(0)");
}

// Only values with several uses are kept.
TEST(PlaceProblem, KeepsValuesWithSeveralUses) {
  const Placed placed(LayeredStep{.layers = 3}.Text(), "8");
  const auto x = static_cast<int32_t>(placed.IndexOf("x0"));
  std::vector<size_t> kept;
  for (const PlacedVariable& variable : placed.problem.variables()) {
    if (variable.result >= 0 && variable.class_index == x) kept.push_back(variable.members.size());
    EXPECT_NE(
        variable.result >= 0 && variable.class_index == static_cast<int32_t>(placed.IndexOf("mm0")),
        true);
  }
  EXPECT_EQ(kept, std::vector<size_t>{2});  // not the last layer's
}

// Fewer ranks never compute faster than the plan that spreads the work: kernels of the optimum on 8 ranks
// take less than on one.
TEST(PlaceProblem, SpreadsTheWork) {
  const LayeredStep step;
  const Placed one(step.Text(), "1");
  const Placed eight(step.Text(), "8");
  EXPECT_LT(eight.solution.cost, one.solution.cost / 3);
}

TEST(PlaceProblem, RejectsPinsThatCannotBe) {
  auto pinned = [](const char* pattern, const char* layout) {
    return Placed(LayeredStep{}.Text(), "8", {.pins = {{pattern, layout}}});
  };
  EXPECT_THROW(pinned("w7", "S(0)"), Error);  // no such parameter
  EXPECT_THROW(pinned("w0", "S(2)"), Error);  // no such dimension
  EXPECT_THROW(pinned("y", "P"), Error);      // results are no partial sums
  EXPECT_THROW(pinned("r0", "P"), Error);     // relu is not linear
}

}  // namespace
}  // namespace gt::place_problem_test
