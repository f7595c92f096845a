#include "gt/dist/mesh.h"

#include <fmt/format.h>

#include <initializer_list>
#include <limits>

#include "gt/base/error.h"
#include "gt/base/text.h"

namespace gt {
namespace {

// As much as fits into the type, if the product does not.
int64_t ProductOf(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) {
      return std::numeric_limits<int64_t>::max();
    }
  }
  return product;
}

// dp_shard = -1 takes what the other degrees leave.
int64_t ShardDegree(const ParallelismSection& degrees, int64_t world_size) {
  const int64_t others =
      ProductOf({degrees.data_parallel_replicate_degree, degrees.context_parallel_degree,
                 degrees.tensor_parallel_degree, degrees.pipeline_parallel_degree});
  std::string law = fmt::format("dp_replicate {} x dp_shard {} x cp {} x tp {} x pp {}",
                                degrees.data_parallel_replicate_degree,
                                degrees.data_parallel_shard_degree < 0
                                    ? "?"
                                    : std::to_string(degrees.data_parallel_shard_degree),
                                degrees.context_parallel_degree, degrees.tensor_parallel_degree,
                                degrees.pipeline_parallel_degree);
  if (degrees.data_parallel_shard_degree < 0) {
    if (world_size % others != 0) {
      Fail(ErrorCode::kBadMesh,
           "{} must be the number of ranks, but {} does not divide {} ranks; change one of the "
           "degrees of --parallelism.*, or the number of ranks",
           law, others, world_size);
    }
    return world_size / others;
  }
  if (degrees.data_parallel_shard_degree == 0) {
    Fail(ErrorCode::kBadMesh,
         "--parallelism.data_parallel_shard_degree 0 leaves no rank; use -1 for all that the other "
         "degrees leave");
  }
  const int64_t all = ProductOf({others, degrees.data_parallel_shard_degree});
  if (all != world_size) {
    Fail(ErrorCode::kBadMesh,
         "{} is {}, but the job has {} ranks; the product must be the number of ranks "
         "(--parallelism.data_parallel_shard_degree -1 takes what the others leave)",
         law, all, world_size);
  }
  return degrees.data_parallel_shard_degree;
}

}  // namespace

std::string_view AxisName(MeshAxis axis) {
  static constexpr std::array<std::string_view, kMeshAxes> kNames = {
      "pp", "dp_replicate", "cp", "tp", "fsdp", "shard", "efsdp", "ep", "batch", "loss", "world"};
  return kNames[static_cast<size_t>(axis)];
}

Mesh::Mesh(const ParallelismSection& degrees, int64_t world_size, int64_t rank)
    : world_size_(world_size), rank_(rank) {
  int64_t dp_shard = ShardDegree(degrees, world_size);
  int64_t replicate = degrees.data_parallel_replicate_degree;
  int64_t tp = degrees.tensor_parallel_degree, cp = degrees.context_parallel_degree;
  int64_t ep = degrees.expert_parallel_degree;
  int64_t shard = dp_shard * cp * tp;
  if (degrees.pipeline_parallel_degree > 1) {
    Fail(ErrorCode::kUnsupportedParallelism,
         "--parallelism.pipeline_parallel_degree {}: gt has no pipeline parallelism yet; use 1",
         degrees.pipeline_parallel_degree);
  }
  if (shard % ep != 0) {
    Fail(ErrorCode::kBadMesh,
         "--parallelism.expert_parallel_degree {} must divide dp_shard {} x cp {} x tp {} = {}: "
         "expert parallelism takes its ranks from those",
         ep, dp_shard, cp, tp, shard);
  }
  auto set = [this](MeshAxis axis, int64_t stride, int64_t size) {
    extents_[static_cast<size_t>(axis)] = {stride, size};
  };
  set(MeshAxis::kTp, 1, tp);
  set(MeshAxis::kCp, tp, cp);
  set(MeshAxis::kFsdp, tp, dp_shard * cp);
  set(MeshAxis::kShard, 1, shard);
  set(MeshAxis::kEp, 1, ep);
  set(MeshAxis::kEfsdp, ep, shard / ep);
  set(MeshAxis::kDpReplicate, shard, replicate);
  set(MeshAxis::kBatch, tp * cp, replicate * dp_shard);
  set(MeshAxis::kLoss, tp, replicate * dp_shard * cp);
  set(MeshAxis::kPp, shard * replicate, degrees.pipeline_parallel_degree);
  set(MeshAxis::kWorld, 1, world_size);
}

int64_t Mesh::coordinate(MeshAxis axis, int64_t rank) const {
  return rank / extent(axis).stride % extent(axis).size;
}

std::vector<int64_t> Mesh::Ranks(MeshAxis axis) const {
  const Extent& along = extent(axis);
  int64_t first = rank_ - coordinate(axis) * along.stride;
  std::vector<int64_t> ranks;
  ranks.reserve(static_cast<size_t>(along.size));
  for (int64_t i = 0; i < along.size; ++i) ranks.push_back(first + i * along.stride);
  return ranks;
}

std::string Mesh::Describe() const {
  std::vector<std::string> parts;
  auto add = [&parts](std::string_view name, int64_t size) {
    if (size > 1) parts.push_back(fmt::format("{} {}", name, size));
  };
  add("dp_replicate", size(MeshAxis::kDpReplicate));
  add("dp_shard", size(MeshAxis::kFsdp) / size(MeshAxis::kCp));
  add("cp", size(MeshAxis::kCp));
  add("tp", size(MeshAxis::kTp));
  add("ep", size(MeshAxis::kEp));
  return parts.empty() ? "one rank" : Join(parts, ", ");
}

}  // namespace gt
