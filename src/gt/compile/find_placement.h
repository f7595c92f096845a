// The search for the placement of a job's step, on every mesh that the job allows: what `gt place` and a
// job with --compile.enable_autoparallel have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/placement/device_mesh.h"
#include "gt/placement/place.h"
#include "gt/placement/plan.h"
#include "gt/sim/cluster.h"

namespace gt {

struct Config;

// --mesh; else the degrees of --parallelism.* as axes; else every mesh of that many ranks with up to two
// axes, and some with three. Fails with BadMesh if none has as many ranks as the job.
std::vector<placement::DeviceMesh> MeshesOf(const Config& config, int64_t ranks);
// Fails with BadMesh unless the mesh has that many ranks.
placement::DeviceMesh RequireRanks(placement::DeviceMesh mesh, int64_t ranks);

struct PlacementRequest {
  const Config& config;
  Graph& step;  // with global shapes
  std::vector<placement::DeviceMesh> meshes;
  // What plans are priced with; null: the configured cluster.
  std::shared_ptr<const Cluster> cluster = nullptr;
  int64_t memory_bytes = 0;            // that a rank may fill, by placement's account; 0: no limit
  bool accumulates_gradients = false;  // over several batches
  double time_limit_s = 60;
  // What is demanded on a mesh; none: nothing.
  std::function<std::vector<placement::Pin>(const placement::DeviceMesh&)> pins = nullptr;
  // The batch is cut along an axis of the mesh at least, as data parallelism does.
  bool split_batch = false;
  // Hand-written layouts compete, for a batch of so many sequences of all ranks; 0: they do not.
  int64_t batch = 0;
  // Of these, only those that send rows to experts, however long they take.
  bool only_experts = false;
  placement::CostFormulas costs = placement::CostFormulas::kSimulated;
  bool overlap = true;
  bool fold = true;
  bool finest_parameters = false;
  double expert_skew = 1;
  // Plans are judged once more by what is predicted of their steps: hand-written layouts compete on the
  // meshes of the job alone, nearly the best is good enough, and the result has candidates. If nothing fits,
  // these need little more than the least: the steps that they become may need less than placement counts.
  bool for_judging = false;
  double memory_price = 0;  // microseconds for each GiB above the limit; 0: nothing may be above it
  std::function<void(const std::string& mesh, double step_us, double bound_us)> progress = nullptr;
};

// A placement with the problem that it solves.
struct PlacedProblem {
  std::shared_ptr<const placement::Pricing> pricing;
  std::shared_ptr<const placement::PlaceProblem> problem;
  placement::Placement placement;
};

struct FoundPlacement {
  std::shared_ptr<PlacedProblem> best;  // its bound holds for all meshes
  bool fits = true;                     // false, for judging alone: nothing does, see there
  struct Rival {
    std::string name;
    std::shared_ptr<PlacedProblem> found;  // null: it does not fit, or takes longer
  };
  std::vector<Rival> rivals;  // hand-written layouts
  struct Candidate {
    std::shared_ptr<PlacedProblem> plan;
    std::string layout;  // the hand-written layout that it is; empty: it was searched
  };
  // For judging, the most promising first: the best of each mesh and others that were met on the way and
  // are nearly as good; the best if no move were hidden, likewise; and the hand-written layouts, the best
  // of them also with parameters sharded as finely as gt train shards them.
  std::vector<Candidate> candidates;
  std::vector<placement::DeviceMesh> meshes;  // in the order in which they were searched
  int meshes_not_tried = 0;                   // for want of time
};

// The options of the search itself, with this much time.
placement::SearchOptions SearchOptionsFor(const PlacementRequest& request, double time_limit_s);

// The placement of least predicted time; hand-written layouts are candidates like any other, so that no
// plan is worse than they are. Fails with NoPlacement, naming demands that contradict each other or the
// smallest memory that would do, if there is none.
FoundPlacement FindPlacement(const PlacementRequest& request);

// Fails with BadPlan.
placement::Plan ReadPlanFile(const std::string& path);

}  // namespace gt
