#include "gt/passes/placement/shard_geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace gt {
namespace {

constexpr std::string_view kGroupPrefix = "mesh";

}  // namespace

AxisList Placed::CutsOf(ShardState piece) const {
  AxisList axes;
  for (int8_t axis : order) {
    if (layout[axis] == piece) axes.push_back(axis);
  }
  return axes;
}

void Placed::MoveInside(const AxisList& axes) {
  auto inside = [&axes](int8_t axis) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  std::stable_partition(order.begin(), order.end(), [&](int8_t axis) { return !inside(axis); });
  std::copy(axes.begin(), axes.end(), order.end() - static_cast<ptrdiff_t>(axes.size()));
}

bool SamePlace(const Placed& a, const Placed& b) {
  if (a.layout != b.layout) return false;
  for (ShardState state : a.layout.axes) {
    if (state >= 0 && a.CutsOf(state) != b.CutsOf(state)) return false;
  }
  return true;
}

MeshRank::MeshRank(placement::DeviceMesh mesh, int64_t rank) : mesh_(std::move(mesh)), rank_(rank) {
  for (int axis = mesh_.axes(); axis-- > 0;) {
    coordinates_[static_cast<size_t>(axis)] = rank % mesh_.size(axis);
    rank /= mesh_.size(axis);
  }
}

int64_t MeshRank::SizeOf(const AxisList& axes) const {
  int64_t size = 1;
  for (int8_t axis : axes) size *= mesh_.size(axis);
  return size;
}

int64_t MeshRank::IndexIn(const AxisList& axes) const {
  int64_t index = 0;
  for (int8_t axis : axes) index = index * mesh_.size(axis) + coordinate(axis);
  return index;
}

std::vector<int64_t> MeshRank::RanksAlong(const AxisList& axes) const {
  auto at = [this](std::array<int64_t, placement::kMaxAxes> coordinates) {
    int64_t rank = 0;
    for (int axis = 0; axis < mesh_.axes(); ++axis) {
      rank = rank * mesh_.size(axis) + coordinates[static_cast<size_t>(axis)];
    }
    return rank;
  };
  std::vector<int64_t> ranks;
  for (int64_t index = 0; index < SizeOf(axes); ++index) {
    auto coordinates = coordinates_;
    int64_t rest = index;
    for (size_t i = axes.size(); i-- > 0;) {
      coordinates[static_cast<uint8_t>(axes[i])] = rest % mesh_.size(axes[i]);
      rest /= mesh_.size(axes[i]);
    }
    ranks.push_back(at(coordinates));
  }
  return ranks;
}

ShardRange MeshRank::OfIndex(int64_t extent, const AxisList& axes, int64_t index) const {
  ShardRange range{0, extent};
  int64_t ranks = SizeOf(axes);
  for (int8_t axis : axes) {
    ranks /= mesh_.size(axis);
    const ShardRange own = ShardOf(range.length, mesh_.size(axis), index / ranks);
    range = {range.begin + own.begin, own.length};
    index %= ranks;
  }
  return range;
}

ShardRange MeshRank::Own(int64_t extent, const AxisList& axes) const {
  return OfIndex(extent, axes, IndexIn(axes));
}

int64_t MeshRank::Longest(int64_t extent, const AxisList& axes) const {
  return OfIndex(extent, axes, 0).length;
}

std::string MeshGroupName(const AxisList& axes) {
  std::string name(kGroupPrefix);
  for (int8_t axis : axes) name += fmt::format("_{}", axis);
  return name;
}

AxisList AxesOfMeshGroup(std::string_view name) {
  if (!name.starts_with(kGroupPrefix)) return {};
  name.remove_prefix(kGroupPrefix.size());
  AxisList axes;
  while (!name.empty()) {
    int axis = 0;
    if (name.size() < 2 || name[0] != '_') return {};
    const auto [stop, error] = std::from_chars(name.data() + 1, name.data() + name.size(), axis);
    if (error != std::errc{} || axis < 0 || axis >= placement::kMaxAxes) return {};
    axes.push_back(static_cast<int8_t>(axis));
    name.remove_prefix(static_cast<size_t>(stop - name.data()));
  }
  return axes;
}

TensorBox BoxOf(const Placed& placed, const placement::Pieces& pieces, const MeshRank& rank,
                const std::vector<int64_t>& sizes) {
  TensorBox box = TensorBox::All(sizes);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const AxisList cuts = placed.CutsOf(static_cast<ShardState>(i));
    if (cuts.empty()) continue;
    const auto dim = static_cast<size_t>(pieces[i].dim);
    const ShardRange own = rank.Own(sizes[dim], cuts);
    box.offset[dim] = own.begin;
    box.sizes[dim] = own.length;
  }
  return box;
}

AxisList WholeAxes(const placement::Layout& layout, int axes) {
  AxisList whole;
  for (int axis = 0; axis < axes; ++axis) {
    if (layout[axis] == kWhole) whole.push_back(static_cast<int8_t>(axis));
  }
  return whole;
}

}  // namespace gt
