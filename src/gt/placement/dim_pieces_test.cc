#include "gt/placement/dim_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gt/ir/text.h"

namespace gt::dim_pieces_test {
namespace {

using namespace placement;

struct Found {
  explicit Found(const std::string& text)
      : graph(Parse(text, "test.gtir")),
        folding(Fold(*graph, /*fold=*/false)),
        pieces(FindPieces(folding, graph->shapes().Hints())) {}

  const ClassPieces& Of(const std::string& name) const {
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (folding.classes[i].name() == name) return pieces[i];
    }
    ADD_FAILURE() << "no value " << name;
    return pieces[0];
  }
  // "2.16 8": pieces of a dimension with points between them.
  std::string Sizes(const std::string& name) const {
    std::string text;
    for (const Piece& piece : Of(name).results[0]) {
      text += (piece.first ? (text.empty() ? "" : " ") : ".") + std::to_string(piece.size);
    }
    return text;
  }
  bool HasRow(const std::string& name, std::vector<ShardState> operands, ShardState result) const {
    const auto& rows = Of(name).rows;
    return std::any_of(rows.begin(), rows.end(), [&](const PieceRow& row) {
      return row.operands == operands && row.results[0] == result;
    });
  }

  std::unique_ptr<Graph> graph;
  Folding folding;
  std::vector<ClassPieces> pieces;
};

constexpr const char* kLinear = R"(graph @g(%x: input "x" f32[2, 16, 8], %w: param "w" f32[8, 4]) {
  %rows = aten::view(%x, size = [32, 8]) : f32[32, 8]
  %mm = aten::mm(%rows, %w) : f32[32, 4]
  %y = aten::view(%mm, size = [2, 16, 4]) : f32[2, 16, 4]
  return result "y" %y
})";

// Batch and sequence stay visible in the rows of a matmul.
TEST(DimPieces, ViewsKeepDimensionsVisible) {
  const Found found(kLinear);
  EXPECT_EQ(found.Sizes("rows"), "2.16 8");
  EXPECT_EQ(found.Sizes("mm"), "2.16 4");
  EXPECT_EQ(found.Sizes("y"), "2 16 4");
  EXPECT_TRUE(found.HasRow("rows", {1}, 1));          // sequence to sequence
  EXPECT_TRUE(found.HasRow("mm", {1, kWhole}, 1));    // sequence
  EXPECT_TRUE(found.HasRow("mm", {0, kWhole}, 0));    // batch
  EXPECT_TRUE(found.HasRow("mm", {2, 0}, kPartial));  // contracted
  EXPECT_TRUE(found.HasRow("mm", {kWhole, 1}, 2));
  EXPECT_TRUE(found.HasRow("y", {2}, 2));
}

// Views pass partial sums on, which divides no work.
TEST(DimPieces, ViewsPassPartialSumsOn) {
  const Found found(kLinear);
  EXPECT_TRUE(found.HasRow("rows", {kPartial}, kPartial));
  for (const PieceRow& row : found.Of("rows").rows) {
    EXPECT_EQ(row.divides, row.results[0] >= 0);
  }
}

// Of two ways to cut a dimension that do not divide each other the first one stays, and the other view is
// not sharded.
TEST(DimPieces, CutsThatContradict) {
  const Found found(R"(graph @g(%x: input "x" f32[12]) {
    %a = aten::view(%x, size = [3, 4]) : f32[3, 4]
    %b = aten::view(%x, size = [4, 3]) : f32[4, 3]
    return result "a" %a, result "b" %b
  })");
  EXPECT_EQ(found.Sizes("x"), "3.4");
  EXPECT_TRUE(found.HasRow("a", {0}, 0));
  EXPECT_TRUE(found.HasRow("a", {1}, 1));
  for (const PieceRow& row : found.Of("b").rows) EXPECT_LT(row.results[0], 0);
}

// Cuts reach a weight through the matmul that makes heads of its rows.
TEST(DimPieces, HeadsAreSeenInTheWeight) {
  const Found found(R"(graph @g(%x: input "x" f32[32, 8], %w: param "w" f32[8, 48]) {
    %mm = aten::mm(%x, %w) : f32[32, 48]
    %heads = aten::view(%mm, size = [32, 6, 8]) : f32[32, 6, 8]
    %y = aten::relu(%heads) : f32[32, 6, 8]
    return result "y" %y
  })");
  EXPECT_EQ(found.Sizes("w"), "8 6.8");
  EXPECT_TRUE(found.HasRow("mm", {kWhole, 1}, 1));
  EXPECT_TRUE(found.HasRow("heads", {1}, 1));
}

// Eight heads of queries and two of keys are sharded together, by at most two ranks.
TEST(DimPieces, GroupedHeadsShardByTheFewest) {
  const Found found(R"(graph @g(%q: input "q" bf16[2, 8, 16, 64], %k: input "k" bf16[2, 2, 16, 64],
      %v: input "v" bf16[2, 2, 16, 64]) {
    %out, %lse = aten::_scaled_dot_product_flash_attention_for_cpu(%q, %k, %v) : (bf16[2, 8, 16, 64], f32[2, 8, 16])
    return result "out" %out
  })");
  const auto& rows = found.Of("out").rows;
  auto heads = std::find_if(rows.begin(), rows.end(), [](const PieceRow& row) {
    return row.operands == std::vector<ShardState>{1, 1, 1};
  });
  ASSERT_NE(heads, rows.end());
  EXPECT_EQ(heads->multiple, 2);
}

// The first way is always that every rank does everything.
TEST(DimPieces, FirstRowIsWhole) {
  const Found found(kLinear);
  for (size_t i = 0; i < found.pieces.size(); ++i) {
    if (found.folding.classes[i].node == nullptr) continue;
    const PieceRow& first = found.pieces[i].rows.front();
    for (ShardState state : first.operands) EXPECT_EQ(state, kWhole);
    for (ShardState state : first.results) EXPECT_EQ(state, kWhole);
  }
}

}  // namespace
}  // namespace gt::dim_pieces_test
