// Experts: where rows, matrices and their gradients are when tokens are shared out.
#include "gt/placement/expert_rows.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gt/testing/small_placement.h"

namespace gt::expert_rows_test {
namespace {

using namespace placement;
using testing::SmallPlacement;

// 16 sequences of 8192 tokens, 2 of 8 experts for each; as a capture on one device has it.
constexpr const char* kStep = R"(graph @moe(
    %gate: param "moe.gate" bf16[2048, 8],
    %w: param "moe.experts.w" bf16[8, 2048, 4096],
    %x: input "x" bf16[16, 8192, 2048],
    %dy: input "dy" bf16[262144, 4096]) {
  %tokens = aten::view(%x, size = [131072, 2048]) : bf16[131072, 2048]
  %scores = aten::mm(%tokens, %gate) : bf16[131072, 8] {module = "moe.router"}
  %top, %chosen = aten::topk(%scores, k = 2) : (bf16[131072, 2], i64[131072, 2]) {module = "moe.router"}
  %zeros = aten::zeros_like(%scores, dtype = bool) : bool[131072, 8] {module = "moe.router"}
  %hot = aten::scatter.value(%zeros, dim = 1, index = %chosen, value = true) : bool[131072, 8] {module = "moe.router"}
  %counts = aten::sum.dim_IntList(%hot, dim = [0]) : i64[8] {module = "moe.router"}
  %flat = aten::view(%chosen, size = [262144]) : i64[262144] {module = "moe", ep = dispatch}
  %sorted, %order = aten::sort.stable(%flat, stable = true, dim = 0) : (i64[262144], i64[262144]) {module = "moe", ep = dispatch}
  %source = aten::floor_divide.Scalar(%order, other = 2) : i64[262144] {module = "moe", ep = dispatch}
  %rows = aten::index_select(%tokens, dim = 0, index = %source) : bf16[262144, 2048] {module = "moe", ep = dispatch}
  %ends = aten::cumsum(%counts, dim = 0, dtype = i32) : i32[8] {module = "moe.experts"}
  %y = aten::_grouped_mm(%rows, %w, %ends) : bf16[262144, 4096] {module = "moe.experts"}
  %numbers = aten::arange(end = 262144, dtype = i64) : i64[262144] {module = "moe", ep = dispatch}
  %blank = aten::zeros_like(%order) : i64[262144] {module = "moe", ep = dispatch}
  %back = aten::scatter.src(%blank, dim = 0, index = %order, src = %numbers) : i64[262144] {module = "moe", ep = dispatch}
  %out = aten::index_select(%y, dim = 0, index = %back) : bf16[262144, 4096] {module = "moe", ep = combine}
  %routed_dy = aten::index_select(%dy, dim = 0, index = %order) : bf16[262144, 4096] {module = "moe", phase = backward, ep = combine}
  %rows_t = aten::transpose.int(%rows, dim0 = 0, dim1 = 1) : bf16[2048, 262144]{1, 2048} {module = "moe.experts", phase = backward}
  %dw = aten::_grouped_mm(%rows_t, %routed_dy, %ends) : bf16[8, 2048, 4096] {module = "moe.experts", phase = backward}
  return result "out" %out, gradient "moe.experts.w" %dw
}
)";

// The host reads a number that is made of sorted rows, and must read the same on every rank.
TEST(ExpertRows, NumbersForTheHostAreReadWhole) {
  const SmallPlacement placed(R"(graph @reads(%x: input "x" i64[4096]) {
  symbols { u0: data, hint 3, range [0, inf] }
  %sorted, %order = aten::sort.stable(%x, stable = true, dim = 0) : (i64[4096], i64[4096]) {module = "moe", ep = dispatch}
  %n = aten::sum.dim_IntList(%sorted, dim = [0], keepdim = true) : i64[1] {module = "moe", ep = dispatch}
  gt::read_ints(%n) binds [u0] {module = "moe", ep = dispatch}
  %z = aten::zeros(size = [u0]) : f32[u0]
  return result "z" %z
})",
                              "2x2");
  ASSERT_TRUE(placed.placement().feasible);
  int reads = 0;
  const Folding& folding = placed.problem().folding();
  for (size_t i = 0; i < folding.classes.size(); ++i) {
    const Node* node = folding.classes[i].node;
    if (node == nullptr || node->result_count() > 0) continue;
    ++reads;
    for (const Strategy& strategy : placed.problem().strategies()[i]) {
      EXPECT_EQ(strategy.operands, std::vector{placement::Layout()});
    }
  }
  EXPECT_EQ(reads, 1);
}

class Experts {
 public:
  explicit Experts(const std::string& mesh, std::vector<AxisUse> axes = {},
                   std::vector<Pin> pins = {})
      : placed_(kStep, mesh, {.axes = std::move(axes), .pins = std::move(pins)},
                {.overlap = false}) {}

  bool feasible() const { return placed_.placement().feasible; }

  // "E0 S(0) R -> E0": operands and first result of the node.
  std::string Of(const std::string& name) {
    const PlaceProblem& problem = placed_.problem();
    const Value* value = placed_.graph().FindValue(name);
    const auto i = static_cast<size_t>(
        value->is_input()
            ? problem.folding().class_of_input[static_cast<size_t>(value->index())]
            : problem.folding().class_of_node[static_cast<size_t>(value->producer()->number())]);
    const Strategy& strategy =
        problem.strategies()[i][static_cast<size_t>(placed_.placement().labels[i])];
    const ClassPieces& pieces = problem.pieces()[i];
    const DeviceMesh& mesh = problem.pricing().mesh();
    std::string text;
    for (size_t k = 0; k < strategy.operands.size(); ++k) {
      text += ToString(strategy.operands[k], pieces.operands[k], mesh) + " ";
    }
    return text + (text.empty() ? "" : "-> ") +
           ToString(strategy.results[0], pieces.results[0], mesh);
  }

 private:
  SmallPlacement placed_;
};

TEST(ExpertRows, TravelToTheRanksOfTheirExperts) {
  Experts experts("4", {AxisUse::kExperts}, {{"y", "E0"}, {"moe.experts.w", "S(0)"}});
  ASSERT_TRUE(experts.feasible());
  EXPECT_EQ(experts.Of("order"), "S(0) -> S(0)");
  EXPECT_EQ(experts.Of("rows"), "S(0) S(0) -> E0");
  EXPECT_EQ(experts.Of("y"), "E0 S(0) R -> E0");
  EXPECT_EQ(experts.Of("out"), "E0 S(0) -> S(0)");
  EXPECT_EQ(experts.Of("dw"), "E0 E0 R -> S(0)");
}

TEST(ExpertRows, StayWhereEveryRankHasAllExperts) {
  Experts experts("4", {AxisUse::kShard}, {{"x", "S(0)"}});
  ASSERT_TRUE(experts.feasible());
  EXPECT_EQ(experts.Of("rows"), "S(0) S(0) -> S(0)");
  EXPECT_EQ(experts.Of("y"), "S(0) R R -> S(0)");
  EXPECT_EQ(experts.Of("dw"), "S(1) S(0) R -> P");
}

// Tokens that were shared out by sequence cannot come back as if it had been by batch.
TEST(ExpertRows, ComeBackToTheRanksTheyCameFrom) {
  Experts experts("4", {}, {{"x", "S(1)"}, {"rows", "E1"}, {"out", "S(0.1)"}});
  ASSERT_TRUE(experts.feasible());
  EXPECT_EQ(experts.Of("y"), "E1 S(0) R -> E1");
  EXPECT_EQ(experts.Of("out"), "E1 S(0.1) -> S(0.1)");
  EXPECT_FALSE(Experts("4", {}, {{"y", "E1"}, {"out", "S(0)"}}).feasible());
}

TEST(ExpertRows, AreOnOneAxisWhileTheOtherSharesTheirMatrices) {
  Experts experts("2x4", {AxisUse::kShard, AxisUse::kExperts},
                  {{"x", "S(0)S(0)"}, {"y", "S(0)E0"}, {"moe.experts.w", "S(0)S(0)"}});
  ASSERT_TRUE(experts.feasible());
  EXPECT_EQ(experts.Of("y"), "S(0)E0 RS(0) RR -> S(0)E0");
  EXPECT_EQ(experts.Of("dw"), "S(1)E0 S(0)E0 RR -> PS(0)");
}

// Where experts are not equally loaded, rows that travel cost more; rows that stay do not.
TEST(ExpertRows, CostWhatTheBusiestRankGets) {
  const std::unique_ptr<Graph> graph = Parse(kStep, "moe.gtir");
  const LinkModel links(ReadCluster(GT_SOURCE_DIR "/configs/clusters/h100.toml"));
  auto step = [&](double skew, const std::string& rows) {
    Pricing pricing(DeviceMesh({4}), links, SpeedOf("hopper"));
    pricing.set_expert_skew(skew);
    const PlaceProblem problem(*graph, pricing, {.pins = {{"y", rows}}});
    return Search(problem, {.overlap = false}).step_us;
  };
  EXPECT_GT(step(2, "E0"), 1.2 * step(1, "E0"));
  EXPECT_EQ(step(2, "S(0)"), step(1, "S(0)"));
}

}  // namespace
}  // namespace gt::expert_rows_test
