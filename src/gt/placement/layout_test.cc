#include "gt/placement/layout.h"

#include <gtest/gtest.h>

#include <set>

namespace gt::layout_test {
namespace {

using namespace placement;
using placement::Layout;

// A tensor without pieces within dimensions.
Pieces Plain(std::initializer_list<int64_t> sizes) {
  Pieces pieces;
  for (int64_t size : sizes) {
    pieces.push_back({static_cast<int32_t>(pieces.size()), size, size, true});
  }
  return pieces;
}

// [outer * inner, last] with its first dimension in two pieces.
Pieces Joined(int64_t outer, int64_t inner, int64_t last) {
  return {{0, outer, outer * inner, true}, {0, inner, outer * inner, false}, {1, last, last, true}};
}

Layout Of(ShardState a, ShardState b = kWhole) { return {{a, b, kWhole, kWhole}}; }

TEST(Layout, PrintsAndParses) {
  const DeviceMesh mesh = DeviceMesh::Parse("2x4");
  const Pieces pieces = Joined(16, 8, 32);
  EXPECT_EQ(ToString(Of(0), pieces, mesh), "S(0)R");
  EXPECT_EQ(ToString(Of(1, 2), pieces, mesh), "S(0.1)S(1)");
  EXPECT_EQ(ToString(Of(kPartial, kWhole), pieces, mesh), "PR");
  EXPECT_EQ(ParseLayout("S0R", pieces, mesh), Of(0));
  EXPECT_EQ(ParseLayout("S0.1P", pieces, mesh), Of(1, kPartial));
  for (const Layout& layout : LayoutsOf(pieces, mesh)) {
    EXPECT_EQ(ParseLayout(ToString(layout, pieces, mesh), pieces, mesh), layout);
  }
}

TEST(Layout, RejectsWhatIsNoLayout) {
  const DeviceMesh mesh = DeviceMesh::Parse("2x4");
  const Pieces pieces = Joined(16, 8, 4);
  for (const char* text : {"", "R", "RRR", "S(0)", "S", "S(", "S(0", "S(0)S", "S(2)R", "S(-1)R",
                           "S(0.2)R", "S(0.)R", "S(0.-1)R", "S(1.1)R", "QR", "S(0)R ", " RR"}) {
    EXPECT_FALSE(ParseLayout(text, pieces, mesh)) << text;
  }
  EXPECT_FALSE(ParseLayout("S(1)S(1)", pieces, mesh));  // 8 shards of 4 elements
}

// Shards are as long as each other but for the last, and none is empty: 7 among 4 are 2, 2, 2, 1, while
// 5 among 4 would be 2, 2, 1, 0.
TEST(Layout, UnevenShardsFitUnlessOneIsEmpty) {
  const DeviceMesh mesh = DeviceMesh::Parse("4");
  EXPECT_TRUE(Fits(Of(0), Plain({7}), mesh));
  EXPECT_DOUBLE_EQ(LocalFraction(Of(0), Plain({7}), mesh), 2.0 / 7);
  EXPECT_FALSE(Fits(Of(0), Plain({5}), mesh));
  EXPECT_FALSE(Fits(Of(0), Plain({3}), mesh));
  EXPECT_TRUE(Fits(Of(kWhole), Plain({3}), mesh));
  EXPECT_DOUBLE_EQ(LocalFraction(Of(kPartial), Plain({3}), mesh), 1);
}

// A piece within a dimension divides evenly; the first one stands for stretches of the dimension, unless
// another of its pieces is cut as well.
TEST(Layout, InnerPiecesDivide) {
  const DeviceMesh mesh = DeviceMesh::Parse("2x2");
  const Pieces pieces = Joined(3, 4, 5);
  EXPECT_TRUE(Fits(Of(1), pieces, mesh));
  EXPECT_TRUE(Fits(Of(1, 1), pieces, mesh));
  EXPECT_TRUE(Fits(Of(0, 0), pieces, mesh));   // 12 rows among 4
  EXPECT_FALSE(Fits(Of(0, 1), pieces, mesh));  // 3 among 2, and of each a half
  EXPECT_FALSE(Fits(Of(1), Joined(4, 3, 5), mesh));
}

TEST(Layout, CountsShards) {
  const DeviceMesh mesh = DeviceMesh::Parse("2x4");
  const Pieces pieces = Plain({16, 32});
  EXPECT_EQ(WaysOf(Of(0, 0), pieces, mesh), (std::vector<int64_t>{8, 1}));
  EXPECT_EQ(WaysOf(Of(0, 1), pieces, mesh), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(WaysOf(Of(kPartial, 1), pieces, mesh), (std::vector<int64_t>{1, 4}));
  EXPECT_DOUBLE_EQ(LocalFraction(Of(0, 1), pieces, mesh), 1.0 / 8);
}

// Each axis cuts any piece or none; partial sums are nothing a value is stored as.
TEST(Layout, EnumeratesAllThatFit) {
  const DeviceMesh mesh = DeviceMesh::Parse("2x4");
  EXPECT_EQ(LayoutsOf(Plain({16, 32}), mesh).size(), 9u);
  EXPECT_EQ(LayoutsOf(Plain({16, 4}), mesh).size(), 8u);  // not 8 shards of 4
  EXPECT_EQ(LayoutsOf(Plain({1}), mesh).size(), 1u);
  EXPECT_EQ(LayoutsOf({}, mesh).size(), 1u);
  const std::vector<Layout> layouts = LayoutsOf(Joined(16, 8, 32), mesh);
  EXPECT_EQ(layouts.front(), Layout{});
  EXPECT_EQ(std::set<Layout>(layouts.begin(), layouts.end()).size(), layouts.size());
  for (const Layout& layout : layouts) EXPECT_FALSE(layout.HasPartial());
}

}  // namespace
}  // namespace gt::layout_test
