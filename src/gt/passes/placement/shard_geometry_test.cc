#include "gt/passes/placement/shard_geometry.h"

#include <gtest/gtest.h>

#include <vector>

namespace gt::shard_geometry_test {
namespace {

using placement::DeviceMesh;
using placement::Layout;
using placement::Pieces;

Layout LayoutOf(ShardState first, ShardState second, ShardState third = kWhole) {
  Layout layout;
  layout[0] = first;
  layout[1] = second;
  layout[2] = third;
  return layout;
}

TEST(MeshRankTest, TheLastAxisIsTheFastest) {
  const MeshRank rank(DeviceMesh({2, 3}), 4);
  EXPECT_EQ(rank.coordinate(0), 1);
  EXPECT_EQ(rank.coordinate(1), 1);
  EXPECT_EQ(rank.RanksAlong({1}), (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(rank.RanksAlong({0}), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(rank.RanksAlong({1, 0}), (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(rank.IndexIn({1, 0}), 3);
  EXPECT_FALSE(rank.IsFirstAlong({0}));
}

// What the ranks have along any order of axes covers every element once, also where nothing divides.
TEST(MeshRankTest, NestedCutsCoverEverythingOnce) {
  const DeviceMesh mesh({2, 3, 2});
  for (const AxisList& axes : {AxisList{0}, AxisList{1, 0}, AxisList{2, 0, 1}, AxisList{1, 2}}) {
    for (int64_t extent : {12, 13, 17, 24, 5}) {
      std::vector<int> owners(static_cast<size_t>(extent), 0);
      const MeshRank rank(mesh, 0);
      for (int64_t i = 0; i < rank.SizeOf(axes); ++i) {
        const ShardRange range = rank.OfIndex(extent, axes, i);
        EXPECT_LE(range.length, rank.Longest(extent, axes));
        for (int64_t at = range.begin; at < range.begin + range.length; ++at) {
          ++owners[static_cast<size_t>(at)];
        }
      }
      EXPECT_EQ(owners, std::vector<int>(static_cast<size_t>(extent), 1)) << extent;
    }
  }
}

// Without the innermost axis a rank and its neighbours have, one after the other, what is left.
TEST(MeshRankTest, InnermostCutsMakeUpTheOuterOnes) {
  const DeviceMesh mesh({3, 2});
  for (int64_t number = 0; number < 6; ++number) {
    const MeshRank rank(mesh, number);
    const ShardRange outer = rank.Own(13, {1});
    int64_t at = outer.begin;
    for (int64_t other : rank.RanksAlong({0})) {
      const ShardRange inner = MeshRank(mesh, other).Own(13, {1, 0});
      EXPECT_EQ(inner.begin, at);
      at += inner.length;
    }
    EXPECT_EQ(at, outer.begin + outer.length);
  }
}

TEST(PlacedTest, OrdersMatterOnlyWhereAPieceIsCutTwice) {
  Placed a{LayoutOf(0, 0), kMeshOrder}, b = a;
  b.MoveInside({0});
  EXPECT_EQ(a.CutsOf(0), (AxisList{0, 1}));
  EXPECT_EQ(b.CutsOf(0), (AxisList{1, 0}));
  EXPECT_FALSE(SamePlace(a, b));
  a.layout = b.layout = LayoutOf(0, 1);
  EXPECT_TRUE(SamePlace(a, b));
}

TEST(PlacedTest, BoxesFollowTheOrder) {
  const Pieces pieces = {{.dim = 0, .size = 12, .dim_size = 12},
                         {.dim = 1, .size = 5, .dim_size = 5}};
  Placed placed{LayoutOf(0, 0), kMeshOrder};
  const MeshRank rank(DeviceMesh({2, 3}), 1);  // first along axis 0, second along axis 1
  EXPECT_EQ(BoxOf(placed, pieces, rank, {12, 5}), (TensorBox{{12, 5}, {2, 0}, {2, 5}}));
  placed.MoveInside({0});
  EXPECT_EQ(BoxOf(placed, pieces, rank, {12, 5}), (TensorBox{{12, 5}, {4, 0}, {2, 5}}));
}

TEST(MeshGroupTest, NamesCanBeReadBack) {
  for (const AxisList& axes : {AxisList{0}, AxisList{1, 0}, AxisList{0, 2, 3}}) {
    EXPECT_EQ(AxesOfMeshGroup(MeshGroupName(axes)), axes);
  }
  for (const char* name : {"fsdp", "mesh", "mesh_", "mesh_9", "mesh_0x", "mesh_-1"}) {
    EXPECT_TRUE(AxesOfMeshGroup(name).empty()) << name;
  }
}

}  // namespace
}  // namespace gt::shard_geometry_test
