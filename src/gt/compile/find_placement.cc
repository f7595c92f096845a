#include "gt/compile/find_placement.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/job/config.h"
#include "gt/placement/hand_layouts.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/link_model.h"
#include "gt/sim/node_cost.h"

namespace gt {
namespace {

using placement::AxisUse;
using placement::DeviceMesh;
using placement::Placement;
using placement::PlaceProblem;
using placement::Pricing;
using Clock = std::chrono::steady_clock;

DeviceMesh Checked(DeviceMesh mesh, int64_t ranks) {
  if (mesh.ranks() != ranks) {
    Fail(ErrorCode::kBadMesh, "mesh {} has {} ranks, but the job has {} (--ranks)", mesh.ToString(),
         mesh.ranks(), ranks);
  }
  return mesh;
}

class Finder {
 public:
  explicit Finder(const PlacementRequest& request)
      : request_(request),
        links_(ReadCluster(ClusterPath(request.config.comm.cluster))),
        start_(Clock::now()) {}

  FoundPlacement Run() {
    const std::vector<DeviceMesh> meshes = request_.mesh.empty()
                                               ? MeshesOf(request_.config, request_.ranks)
                                               : std::vector{DeviceMesh(request_.mesh)};
    for (const placement::HandLayout& layout : HandWritten()) {
      const std::shared_ptr<Found> found = Try(layout.mesh, layout.axes, 0.3);
      if (found == nullptr) continue;
      if (result_.rival.empty() || found->placement.step_us < result_.rival_us) {
        result_.rival = layout.name;
        result_.rival_us = found->placement.step_us;
      }
      const bool allowed = std::find(meshes.begin(), meshes.end(), layout.mesh) != meshes.end();
      if (allowed && IsBetter(*found)) best_ = found;
    }
    double bound = placement::kForbidden;
    for (const DeviceMesh& mesh : meshes) {
      const std::shared_ptr<Found> found = Try(mesh, {}, 1);
      bound = std::min(bound, last_bound_);
      if (found != nullptr && IsBetter(*found)) best_ = found;
    }
    if (best_ == nullptr) Refuse(meshes.front());
    best_->placement.bound_us = std::min(bound, best_->placement.step_us);
    result_.plan = MakePlan(*best_->problem, best_->placement, request_.title);
    return std::move(result_);
  }

 private:
  struct Found {
    std::unique_ptr<Pricing> pricing;
    std::unique_ptr<PlaceProblem> problem;
    Placement placement;
  };

  bool IsBetter(const Found& found) const {
    return best_ == nullptr || found.placement.step_us < best_->placement.step_us;
  }

  std::vector<placement::HandLayout> HandWritten() const {
    if (!request_.pins.empty()) return {};
    return placement::HandLayouts(
        {.ranks = request_.ranks,
         .batch = request_.batch,
         .gpus_per_node = links_.cluster().gpus_per_node,
         .experts = !request_.step.modules().With(ModuleRole::kExperts).empty()});
  }

  std::shared_ptr<Found> Try(const DeviceMesh& mesh, const std::vector<AxisUse>& axes,
                             double share_of_time) {
    auto found = std::make_shared<Found>();
    found->pricing = std::make_unique<Pricing>(mesh, links_, SpeedOf(links_.cluster().generation));
    placement::ProblemOptions problem;
    problem.axes = axes;
    problem.pins = request_.pins;
    problem.reshard_after_forward =
        request_.config.parallelism.fsdp_reshard_after_forward != ReshardAfterForward::kNever;
    found->problem = std::make_unique<PlaceProblem>(request_.step, *found->pricing, problem);
    placement::SearchOptions search;
    search.memory.limit = request_.memory_bytes;
    const double left = request_.config.compile.autoparallel_time_limit -
                        std::chrono::duration<double>(Clock::now() - start_).count();
    search.time_limit_s = std::max(share_of_time * left, 0.1);
    if (best_ != nullptr) search.give_up_at = best_->placement.step_us;
    if (request_.progress) {
      search.progress = [&](double step_us, double bound_us) {
        request_.progress(mesh.ToString(), step_us, bound_us);
      };
    }
    found->placement = Search(*found->problem, search);
    last_bound_ = found->placement.bound_us;
    return found->placement.feasible ? found : nullptr;
  }

  [[noreturn]] void Refuse(const DeviceMesh& mesh) const {
    const Pricing pricing(mesh, links_, SpeedOf(links_.cluster().generation));
    const PlaceProblem problem(request_.step, pricing, {});
    placement::SearchOptions search;
    search.overlap = false;
    search.time_limit_s = 2;
    constexpr double kGibi = 1024.0 * 1024 * 1024;
    Fail(ErrorCode::kNoPlacement,
         "mesh {}: no placement fits into {:.4f} GiB of memory on each rank; with {:.4f} GiB there "
         "is one. More ranks, a smaller batch or --compile.memory_policy need less",
         mesh.ToString(), static_cast<double>(request_.memory_bytes) / kGibi,
         std::ceil(static_cast<double>(SmallestMemory(problem, search)) / kGibi * 1e4) / 1e4);
  }

  const PlacementRequest& request_;
  const LinkModel links_;
  const Clock::time_point start_;
  FoundPlacement result_;
  std::shared_ptr<Found> best_;
  double last_bound_ = 0;
};

}  // namespace

std::vector<DeviceMesh> MeshesOf(const Config& config, int64_t ranks) {
  if (config.mesh != "auto") return {Checked(DeviceMesh::Parse(config.mesh), ranks)};
  const ParallelismSection& degrees = config.parallelism;
  std::vector<int64_t> sizes;
  for (int64_t size : {degrees.data_parallel_replicate_degree, degrees.data_parallel_shard_degree,
                       degrees.context_parallel_degree, degrees.tensor_parallel_degree}) {
    if (size > 1) sizes.push_back(size);
  }
  if (!sizes.empty() && degrees.data_parallel_shard_degree < 0) {
    int64_t others = 1;
    for (int64_t size : sizes) others *= size;
    if (others < ranks && ranks % others == 0) sizes.insert(sizes.begin(), ranks / others);
  }
  if (!sizes.empty()) return {Checked(DeviceMesh(sizes), ranks)};
  constexpr int kMostAxes = 2;
  return placement::MeshesOf(ranks, kMostAxes);
}

FoundPlacement FindPlacement(const PlacementRequest& request) { return Finder(request).Run(); }

placement::Plan ReadPlanFile(const std::string& path) {
  try {
    return placement::PlanFromJson(ReadWholeFile(path), path);
  } catch (const UnreadableFile& error) {
    Fail(ErrorCode::kBadPlan, "{}: {}", path, error.what());
  }
}

}  // namespace gt
