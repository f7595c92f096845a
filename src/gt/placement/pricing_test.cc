#include "gt/placement/pricing.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gt/ir/text.h"
#include "gt/placement/solver/label_problem.h"
#include "gt/sim/cluster.h"

namespace gt::pricing_test {
namespace {

using namespace placement;

constexpr double kMiB = 1 << 20;

// Moves of f32[1024, 1024], 4 MiB, on 4 nodes of 8 H100.
class Pricing4x8 : public ::testing::Test {
 protected:
  Move MoveOf(const std::string& from, const std::string& to, bool contiguous = true,
              CostFormulas formulas = CostFormulas::kSimulated) const {
    const Pricing& pricing = formulas == CostFormulas::kSimulated ? simulated_ : autoparallel_;
    return pricing.MoveOf({pieces_, 4 * kMiB, contiguous}, *ParseLayout(from, pieces_, mesh_),
                          *ParseLayout(to, pieces_, mesh_));
  }
  // The kinds of collectives, their axes and bytes.
  static void ExpectSteps(const Move& move, const std::vector<Step>& steps) {
    ASSERT_EQ(move.count, static_cast<int>(steps.size()));
    double us = move.copy_us;
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(move.steps[i].kind, steps[i].kind) << i;
      EXPECT_EQ(move.steps[i].axes, steps[i].axes) << i;
      EXPECT_DOUBLE_EQ(move.steps[i].bytes, steps[i].bytes) << i;
      us += move.steps[i].us;
    }
    EXPECT_NEAR(move.us, us, 1e-9);
  }

  const DeviceMesh mesh_ = DeviceMesh::Parse("4x8");
  const LinkModel links_{ReadCluster(GT_SOURCE_DIR "/configs/clusters/h100.toml")};
  const Pricing simulated_{mesh_, links_, SpeedOf("hopper")};
  const Pricing autoparallel_{mesh_, links_, SpeedOf("hopper"), CostFormulas::kAutoparallel};
  const Pieces pieces_ = {{0, 1024, 1024, true}, {1, 1024, 1024, true}};
};

TEST_F(Pricing4x8, StayingAndCuttingAreFree) {
  EXPECT_EQ(MoveOf("S(0)R", "S(0)R").us, 0);
  EXPECT_EQ(MoveOf("PS(1)", "PS(1)").us, 0);
  EXPECT_EQ(MoveOf("RR", "S(0)S(1)").us, 0);
  EXPECT_EQ(MoveOf("S(0)R", "S(0)S(1)").us, 0);
}

TEST_F(Pricing4x8, OneCollectiveForEachKindOfMove) {
  ExpectSteps(MoveOf("S(0)R", "RR"), {{Collective::kAllGather, 0b01, 4 * kMiB}});
  ExpectSteps(MoveOf("RS(0)", "RR"), {{Collective::kAllGather, 0b10, 4 * kMiB}});
  ExpectSteps(MoveOf("PR", "RR"), {{Collective::kAllReduce, 0b01, 4 * kMiB}});
  ExpectSteps(MoveOf("RP", "RS(0)"), {{Collective::kReduceScatter, 0b10, 4 * kMiB}});
  ExpectSteps(MoveOf("RS(0)", "RS(1)"), {{Collective::kAllToAll, 0b10, kMiB / 2}});
  ExpectSteps(MoveOf("S(0)S(1)", "S(0)R"), {{Collective::kAllGather, 0b10, kMiB}});
}

// What happens to the same dimension along both axes is one collective among all of their ranks.
TEST_F(Pricing4x8, AxesAreFlattened) {
  ExpectSteps(MoveOf("S(0)S(0)", "RR"), {{Collective::kAllGather, 0b11, 4 * kMiB}});
  ExpectSteps(MoveOf("PP", "RR"), {{Collective::kAllReduce, 0b11, 4 * kMiB}});
  ExpectSteps(MoveOf("PP", "S(0)S(0)"), {{Collective::kReduceScatter, 0b11, 4 * kMiB}});
  // Several dimensions as well.
  ExpectSteps(MoveOf("S(0)S(1)", "RR"), {{Collective::kAllGather, 0b11, 4 * kMiB}});
  ExpectSteps(MoveOf("PP", "S(0)S(1)"), {{Collective::kReduceScatter, 0b11, 4 * kMiB}});
}

// Where both axes cut one dimension, the first is the outer one: only the second can begin or cease to cut
// it without shards changing places, unless they may be in any order.
TEST_F(Pricing4x8, ShardsAreKeptInTheOrderOfTheMesh) {
  EXPECT_EQ(MoveOf("S(0)R", "S(0)S(0)").us, 0);
  ExpectSteps(MoveOf("RS(0)", "S(0)S(0)"), {{Collective::kAllToAll, 0b11, kMiB / 8}});
  ExpectSteps(MoveOf("S(0)S(0)", "S(0)R"), {{Collective::kAllGather, 0b10, kMiB}});
  ExpectSteps(MoveOf("S(0)S(0)", "RS(0)"),
              {{Collective::kAllToAll, 0b11, kMiB / 8}, {Collective::kAllGather, 0b01, kMiB / 2}});
  ExpectSteps(MoveOf("PS(0)", "S(0)S(0)"), {{Collective::kReduceScatter, 0b01, kMiB / 2},
                                            {Collective::kAllToAll, 0b11, kMiB / 8}});
  const Moved parameter = {pieces_, 4 * kMiB, true, /*any_order=*/true};
  ExpectSteps(simulated_.MoveOf(parameter, *ParseLayout("S(0)S(0)", pieces_, mesh_),
                                *ParseLayout("RS(0)", pieces_, mesh_)),
              {{Collective::kAllGather, 0b01, kMiB / 2}});
}

// First what makes the tensor smaller, last what makes it larger.
TEST_F(Pricing4x8, SumsComeBeforeGathers) {
  ExpectSteps(MoveOf("S(1)P", "RS(0)"),
              {{Collective::kReduceScatter, 0b10, kMiB}, {Collective::kAllGather, 0b01, kMiB / 2}});
  // A cut along one axis first: less is gathered along the other.
  ExpectSteps(MoveOf("RS(1)", "S(0)R"), {{Collective::kAllGather, 0b10, kMiB}});
}

// Nothing becomes a partial sum by itself, but AutoParallel lets what all ranks have join one.
TEST_F(Pricing4x8, PartialSumsCannotBeMade) {
  for (const CostFormulas formulas : {CostFormulas::kSimulated, CostFormulas::kAutoparallel}) {
    EXPECT_EQ(MoveOf("S(0)R", "PR", true, formulas).us, kForbidden);
    EXPECT_EQ(MoveOf("PS(1)", "PP", true, formulas).us, kForbidden);
  }
  EXPECT_EQ(MoveOf("RR", "PR").us, kForbidden);
  EXPECT_EQ(MoveOf("RR", "PR", true, CostFormulas::kAutoparallel).us, 1);
}

// Shards of anything but the outermost dimension are rearranged, and so is a transposed tensor.
TEST_F(Pricing4x8, RearrangingIsPaidFor) {
  EXPECT_EQ(MoveOf("RS(0)", "RR").copy_us, 0);
  EXPECT_GT(MoveOf("RS(1)", "RR").copy_us, 0);
  EXPECT_GT(MoveOf("RP", "RS(1)").copy_us, 0);
  EXPECT_GT(MoveOf("RS(0)", "RR", /*contiguous=*/false).copy_us, 0);
  EXPECT_EQ(MoveOf("RR", "RS(0)", /*contiguous=*/false).us, 0);
}

// AutoParallel prices one axis after the other, adds a microsecond to every move, and at least 7 us
// for rearranging.
TEST_F(Pricing4x8, AutoparallelGoesAxisByAxis) {
  const CostFormulas formulas = CostFormulas::kAutoparallel;
  const Move gathers = MoveOf("S(0)S(0)", "RR", true, formulas);
  ASSERT_EQ(gathers.count, 2);
  EXPECT_DOUBLE_EQ(gathers.steps[0].bytes, kMiB / 2);
  EXPECT_DOUBLE_EQ(gathers.steps[1].bytes, 4 * kMiB);
  EXPECT_DOUBLE_EQ(gathers.us, gathers.steps[0].us + gathers.steps[1].us + 1);
  const Move sums = MoveOf("PP", "S(0)S(0)", true, formulas);
  EXPECT_EQ(sums.steps[0].axes, 0b10);  // the last axis first
  EXPECT_EQ(MoveOf("RR", "S(0)S(1)", true, formulas).us, 1);
  EXPECT_DOUBLE_EQ(MoveOf("RS(1)", "RR", true, formulas).copy_us, 7);
  EXPECT_DOUBLE_EQ(MoveOf("RS(1)", "RR", false, formulas).copy_us, 14);
}

// A kernel takes the larger of its arithmetic and its memory traffic, and at least 7 us with
// AutoParallel's formulas.
TEST_F(Pricing4x8, KernelsTakeTheirShare) {
  const auto graph = Parse(R"(graph @g(%x: input "x" bf16[8192, 8192]) {
    %mm = aten::mm(%x, %x) : bf16[8192, 8192]
    %relu = aten::relu(%mm) : bf16[8192, 8192]
    %t = aten::t(%relu) : bf16[8192, 8192]{1, 8192}
    return result "t" %t
  })",
                           "test.gtir");
  std::vector<const Node*> nodes;
  for (const Node* node : graph->nodes()) nodes.push_back(node);
  auto us = [&](const Pricing& pricing, size_t i, double part) {
    const std::vector<double> operands(2, part), results(1, part);
    return pricing.KernelUs(*nodes[i], {},
                            {.work = part, .operands = operands, .results = results});
  };
  const double flops = 2.0 * 8192 * 8192 * 8192;
  EXPECT_NEAR(us(autoparallel_, 0, 1), flops / (0.7 * 989e6), 1e-6);
  EXPECT_NEAR(us(autoparallel_, 0, 0.25), flops / 4 / (0.7 * 989e6), 1e-6);
  const double bytes = 2.0 * 2 * 8192 * 8192;
  EXPECT_NEAR(us(autoparallel_, 1, 1), bytes / (0.7 * 3.35 * kMiB * kMiB / 1e6), 1e-6);
  EXPECT_EQ(us(autoparallel_, 1, 1e-6), 7);
  for (const Pricing* pricing : {&simulated_, &autoparallel_}) {
    EXPECT_EQ(us(*pricing, 2, 1), 0);  // a view
    EXPECT_LT(us(*pricing, 0, 0.25), us(*pricing, 0, 1) / 3);
  }
}

}  // namespace
}  // namespace gt::pricing_test
