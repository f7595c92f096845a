// The ranks of a job as a grid. The last axis is the fastest: neighbours along it are consecutive ranks,
// on one node as long as the node has room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gt/sim/link_model.h"

namespace gt::placement {

inline constexpr int kMaxAxes = 4;

// A set of axes, one bit each.
using AxisMask = uint8_t;

class DeviceMesh {
 public:
  // One to four axes, each of two ranks or more (one rank alone: a single axis of 1). Fails with BadMesh.
  explicit DeviceMesh(std::vector<int64_t> sizes);
  // "8x8". Fails with BadMesh.
  static DeviceMesh Parse(std::string_view text);

  int axes() const { return static_cast<int>(sizes_.size()); }
  int64_t size(int axis) const { return sizes_[static_cast<size_t>(axis)]; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t ranks() const;
  // Ranks of the groups along these axes together.
  int64_t Size(AxisMask axes) const;
  // Where the slowest of these groups is.
  GroupSpan Span(AxisMask axes, int64_t gpus_per_node) const;
  std::string ToString() const;  // "8x8"

  friend bool operator==(const DeviceMesh&, const DeviceMesh&) = default;

 private:
  std::vector<int64_t> sizes_;
};

// Every mesh of that many ranks with at most `max_axes` axes: all factorizations, in every order.
std::vector<DeviceMesh> MeshesOf(int64_t ranks, int max_axes);

}  // namespace gt::placement
