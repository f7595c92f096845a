// Moves of a placed step, run by ranks.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "gt/compile/placed_step.h"
#include "gt/exec/program.h"
#include "gt/ir/text.h"
#include "gt/ir/verifier.h"
#include "gt/job/config.h"
#include "gt/passes/placement/moves.h"

namespace gt::placed_moves_test {
namespace {

at::Tensor BytesOf(const at::Tensor& tensor) { return tensor.contiguous().view(at::kByte); }

// One rank contributes the tensor and the others nothing: a sum for all, and shards of it, have every bit, also
// those that 0.0 would change.
TEST(PlacedMoves, SumsOfAWholeTensorHaveItsBits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Config config;
  config.device = DeviceChoice::kCpu;
  config.ranks = 2;
  const placement::DeviceMesh mesh = placement::DeviceMesh::Parse("2");
  const placement::Pieces pieces = {{0, 4, 4}};
  for (const auto& [name, dtype] :
       {std::pair("f32", at::kFloat), std::pair("f64", at::kDouble), std::pair("i64", at::kLong)}) {
    SCOPED_TRACE(name);
    const at::Tensor whole = dtype == at::kLong
                                 ? at::tensor({-1, 0, 7, 1 << 30}, dtype)
                                 : at::tensor({-0.0, 0.0, -kInfinity, 1.0 / 3}, dtype);
    World::Run(config, [&](World& world) {
      for (const ShardState wanted : {kWhole, ShardState{0}}) {
        const std::unique_ptr<Graph> graph = Parse(fmt::format(
            "graph @step(%x: input \"x\" {}[4]) {{\n  return result \"y\" %x\n}}\n", name));
        const MeshRank rank(mesh, world.rank());
        NodeMaker make(*graph, rank);
        Mover mover(make, {});
        Placed sum, end;
        sum.layout[0] = kPartial;
        end.layout[0] = wanted;
        const Shape sizes = {Dim(4)};
        const LocalTensor summand =
            mover.Move({&graph->inputs()[0]->value, {}}, sizes, pieces, sum);
        graph->outputs()[0]->use.Set(mover.Move(summand, sizes, pieces, end).value);
        Verify(*graph);
        MakeMeshGroups(world, *graph, rank);
        const at::Tensor result = Program(*graph).Run(std::array{whole})[0];
        const at::Tensor expected = wanted == kWhole ? whole : whole.chunk(2)[world.rank()];
        EXPECT_TRUE(at::equal(BytesOf(result), BytesOf(expected))) << result << expected;
        EXPECT_EQ(result.scalar_type(), dtype);
      }
    });
  }
}

}  // namespace
}  // namespace gt::placed_moves_test
