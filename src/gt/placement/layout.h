// Where a tensor is on a mesh: for each axis whether it is cut along it, whole on every rank, or a sum
// of what the ranks have.
//
// Dimensions are cut into pieces first (dim_pieces.h): the rows of a matrix that were made from a batch
// of sequences are a piece "batch" and a piece "sequence", and either can be sharded. The first piece
// of a dimension stands for the whole dimension: shards of it are stretches of consecutive elements.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gt/ir/sharding.h"
#include "gt/placement/device_mesh.h"

namespace gt::placement {

// Rows that have been sent to the ranks of their experts, along an axis over which tokens were shared out
// by the first or by the second piece of their dimension (batch, sequence). Only what computes with
// experts understands it, and only an exchange leads into it and out of it.
inline constexpr ShardState kRouted = -3, kRoutedBySecond = -4;
constexpr ShardState RoutedBy(int32_t piece) { return static_cast<ShardState>(kRouted - piece); }
constexpr bool IsRouted(ShardState state) { return state <= kRouted; }

struct Layout {
  // By axis: a piece (0 or more), kWhole or kPartial. Axes beyond the mesh's are kWhole.
  std::array<ShardState, kMaxAxes> axes = {kWhole, kWhole, kWhole, kWhole};

  ShardState& operator[](int axis) { return axes[static_cast<size_t>(axis)]; }
  ShardState operator[](int axis) const { return axes[static_cast<size_t>(axis)]; }
  bool HasPartial() const;
  friend bool operator==(const Layout&, const Layout&) = default;
  friend auto operator<=>(const Layout&, const Layout&) = default;  // NOLINT(modernize-use-nullptr)
};

// A piece of a dimension of a tensor.
struct Piece {
  int32_t dim = 0;
  int64_t size = 1;      // elements of the piece
  int64_t dim_size = 1;  // of the whole dimension
  bool first = true;     // of its dimension
  int32_t id = -1;       // the same for all pieces of a step that operators shard together
  // How many shards a piece may have: a first piece as many as the dimension has elements, any number;
  // another one a divisor of its size.
  int64_t limit() const { return first ? dim_size : size; }
};
using Pieces = std::vector<Piece>;

// How many shards the layout cuts each piece into.
std::vector<int64_t> WaysOf(const Layout& layout, const Pieces& pieces, const DeviceMesh& mesh);

// Whether no shard would be empty, and pieces that are not the first of their dimension divide evenly.
bool Fits(const Layout& layout, const Pieces& pieces, const DeviceMesh& mesh);

// What the largest shard has of the whole, between 0 and 1.
double LocalFraction(const Layout& layout, const Pieces& pieces, const DeviceMesh& mesh);

// All layouts without partial sums that fit; the first is whole everywhere.
std::vector<Layout> LayoutsOf(const Pieces& pieces, const DeviceMesh& mesh);

// "S(0)R", "S(1.1)P", "E0R" for rows with their experts: a piece that is not the first of its dimension has its place after a point.
std::string ToString(const Layout& layout, const Pieces& pieces, const DeviceMesh& mesh);
// Also reads "S0R". Nothing if it is no layout of a tensor with these pieces on this mesh.
std::optional<Layout> ParseLayout(std::string_view text, const Pieces& pieces,
                                  const DeviceMesh& mesh);

}  // namespace gt::placement
