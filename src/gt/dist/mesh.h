// How the ranks of a job are arranged. From the slowest axis to the fastest:
//
//   dense   pp, dp_replicate, dp_shard, cp, tp
//   sparse  pp, dp_replicate, efsdp, ep          over the same ranks
//
// Experts take their ranks from dp_shard, cp and tp: ep * efsdp = dp_shard * cp * tp. A rank's group
// along an axis is therefore always an arithmetic series of ranks, and an axis is two numbers.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gt/job/sections/parallelism.h"

namespace gt {

enum class MeshAxis {
  kPp,
  kDpReplicate,
  kCp,
  kTp,
  kFsdp,   // dp_shard * cp: who shares a parameter that tensor parallelism has split
  kShard,  // dp_shard * cp * tp: who shares any other dense parameter
  kEfsdp,  // who shares the experts of one ep rank
  kEp,
  kBatch,  // dp_replicate * dp_shard: who reads different data
  kLoss,   // dp_replicate * dp_shard * cp: whose losses add up
  kWorld,
};
inline constexpr size_t kMeshAxes = 11;

// "fsdp": the name of the axis, and of the group along it.
std::string_view AxisName(MeshAxis axis);

class Mesh {
 public:
  // Fails with BadMesh, naming the law that is broken, when the degrees do not fit.
  Mesh(const ParallelismSection& degrees, int64_t world_size, int64_t rank);
  // One rank alone.
  Mesh() : Mesh(ParallelismSection{}, 1, 0) {}

  int64_t world_size() const { return world_size_; }
  int64_t rank() const { return rank_; }
  int64_t size(MeshAxis axis) const { return extent(axis).size; }
  // Of this rank along the axis.
  int64_t coordinate(MeshAxis axis) const { return coordinate(axis, rank_); }
  int64_t coordinate(MeshAxis axis, int64_t rank) const;
  // Global ranks of this rank's group along the axis, in the order of their coordinates.
  std::vector<int64_t> Ranks(MeshAxis axis) const;
  // "dp_replicate 2, dp_shard 2": axes longer than one.
  std::string Describe() const;

 private:
  struct Extent {
    int64_t stride = 1;
    int64_t size = 1;
  };
  const Extent& extent(MeshAxis axis) const { return extents_[static_cast<size_t>(axis)]; }

  int64_t world_size_;
  int64_t rank_;
  std::array<Extent, kMeshAxes> extents_;
};

}  // namespace gt
