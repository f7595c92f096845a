#include "gt/placement/device_mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/text.h"

namespace gt::placement {

DeviceMesh::DeviceMesh(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {
  if (sizes_.empty() || sizes_.size() > kMaxAxes) {
    Fail(ErrorCode::kBadMesh, "a mesh has 1 to {} axes, not {}", kMaxAxes, sizes_.size());
  }
  int64_t ranks = 1;
  for (int64_t size : sizes_) {
    constexpr int64_t kMostRanks = 1 << 20;
    if (size < 1 || size > kMostRanks || (ranks *= size) > kMostRanks) {
      Fail(ErrorCode::kBadMesh,
           "mesh {}: every axis has at least 1 rank, and all together have at most {}", ToString(),
           kMostRanks);
    }
    if (size == 1 && sizes_.size() > 1) {
      Fail(ErrorCode::kBadMesh, "mesh {}: an axis of 1 rank places nothing; leave it out",
           ToString());
    }
  }
}

DeviceMesh DeviceMesh::Parse(std::string_view text) {
  std::vector<int64_t> sizes;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    int64_t size = 0;
    auto [stop, error] = std::from_chars(at, end, size);
    if (error != std::errc{} || (stop != end && *stop != 'x')) {
      Fail(ErrorCode::kBadMesh,
           "'{}' is no mesh: write the sizes of its axes with x between them, "
           "such as 8 or 4x8",
           text);
    }
    sizes.push_back(size);
    if (stop == end) return DeviceMesh(std::move(sizes));
    at = stop + 1;
  }
}

int64_t DeviceMesh::ranks() const { return Size(static_cast<AxisMask>((1 << axes()) - 1)); }

int64_t DeviceMesh::Size(AxisMask axes) const {
  int64_t size = 1;
  for (int axis = 0; axis < this->axes(); ++axis) {
    if ((axes >> axis) & 1) size *= this->size(axis);
  }
  return size;
}

GroupSpan DeviceMesh::Span(AxisMask axes, int64_t gpus_per_node) const {
  std::vector<int64_t> group = {0};
  int64_t stride = 1;
  for (int axis = this->axes() - 1; axis >= 0; --axis) {
    if ((axes >> axis) & 1) {
      const size_t before = group.size();
      for (int64_t i = 1; i < size(axis); ++i) {
        for (size_t j = 0; j < before; ++j) group.push_back(group[j] + i * stride);
      }
    }
    stride *= size(axis);
  }
  return SpanOf(group, gpus_per_node);
}

std::string DeviceMesh::ToString() const { return fmt::format("{}", fmt::join(sizes_, "x")); }

namespace {

void Factorize(int64_t left, int max_axes, std::vector<int64_t>& sizes,
               std::vector<DeviceMesh>& meshes) {
  if (left == 1) {
    meshes.emplace_back(sizes);
    return;
  }
  if (static_cast<int>(sizes.size()) == max_axes) return;
  for (int64_t size = 2; size <= left; ++size) {
    if (left % size != 0) continue;
    sizes.push_back(size);
    Factorize(left / size, max_axes, sizes, meshes);
    sizes.pop_back();
  }
}

}  // namespace

std::vector<DeviceMesh> MeshesOf(int64_t ranks, int max_axes) {
  if (ranks == 1) return {DeviceMesh({1})};
  std::vector<DeviceMesh> meshes;
  std::vector<int64_t> sizes;
  Factorize(ranks, max_axes, sizes, meshes);
  return meshes;
}

}  // namespace gt::placement
