// Which elements of a tensor a rank of a mesh has, exactly.
//
// A layout (placement/layout.h) says which axes cut which piece. Where several axes cut the same piece,
// it is cut by one after the other, and which comes first decides who has which stretch: that order is
// part of the geometry here, so that what a plan says and where elements are is the same thing. A
// gather or a reduction that ends with the innermost axes of a piece is one collective; any other would
// need its elements sorted. Cuts are nested: the outermost axis divides the whole, the next one what
// is left, so that taking the innermost axis away always gives the stretches of the others.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gt/placement/layout.h"
#include "gt/storage/tensor_box.h"

namespace gt {

// All axes of a mesh, the outermost cut first.
using AxisOrder = std::array<int8_t, placement::kMaxAxes>;
inline constexpr AxisOrder kMeshOrder = {0, 1, 2, 3};

using AxisList = std::vector<int8_t>;  // outermost first

// Where a tensor is.
struct Placed {
  placement::Layout layout = {};
  AxisOrder order = kMeshOrder;

  // The axes that cut a piece, outermost first.
  AxisList CutsOf(ShardState piece) const;
  // Makes these the innermost ones, in this order.
  void MoveInside(const AxisList& axes);
  // Every rank has the same elements.
  friend bool SamePlace(const Placed& a, const Placed& b);
};

// A rank of a mesh.
class MeshRank {
 public:
  MeshRank(placement::DeviceMesh mesh, int64_t rank);

  const placement::DeviceMesh& mesh() const { return mesh_; }
  int64_t rank() const { return rank_; }
  int64_t coordinate(int axis) const { return coordinates_[static_cast<size_t>(axis)]; }
  int64_t SizeOf(const AxisList& axes) const;
  // This rank's number among those that differ from it along these axes alone.
  int64_t IndexIn(const AxisList& axes) const;
  // Those ranks, by that number: the last axis of the list is the fastest.
  std::vector<int64_t> RanksAlong(const AxisList& axes) const;
  // Whether this rank is the first of them.
  bool IsFirstAlong(const AxisList& axes) const { return IndexIn(axes) == 0; }

  // What is left of an extent that these axes cut: of this rank, or of the one with that number.
  ShardRange Own(int64_t extent, const AxisList& axes) const;
  ShardRange OfIndex(int64_t extent, const AxisList& axes, int64_t index) const;
  // The longest of all ranks'.
  int64_t Longest(int64_t extent, const AxisList& axes) const;

 private:
  placement::DeviceMesh mesh_;
  int64_t rank_;
  std::array<int64_t, placement::kMaxAxes> coordinates_ = {};
};

// "mesh_1_0": the group of ranks that differ along these axes alone.
std::string MeshGroupName(const AxisList& axes);
// The other way round. Empty: it is no name of such a group.
AxisList AxesOfMeshGroup(std::string_view name);

// The part of a tensor of these sizes that a rank stores. Only the first piece of a dimension is cut.
TensorBox BoxOf(const Placed& placed, const placement::Pieces& pieces, const MeshRank& rank,
                const std::vector<int64_t>& sizes);

// Along which axes ranks have the same.
AxisList WholeAxes(const placement::Layout& layout, int axes);

}  // namespace gt
