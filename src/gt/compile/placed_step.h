// A job whose placement is found (--compile.enable_autoparallel): the step of one device is captured,
// placed on the mesh of the ranks, and rewritten into this rank's.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gt/compile/plan_finder.h"
#include "gt/compile/prediction.h"
#include "gt/compile/single_device_step.h"
#include "gt/compile/step_request.h"
#include "gt/job/sections/compile.h"
#include "gt/passes/placement/apply_placement.h"
#include "gt/placement/plan.h"
#include "gt/trace/capture.h"

namespace gt {

// What a rank of a placed job needs to know beyond its graph.
struct PlacedJob {
  placement::Plan plan;
  PlacedStep step;
  // Of a plan that was searched, on the first rank.
  ChosenPlan chosen;
  HandWritten rival;   // the best of them
  int64_t judged = 0;  // plans
  // The file of a plan that is continued; empty: it was searched or is configured.
  std::string source;
  double seconds = 0;  // that finding it took
};

// The mesh of its plan; empty: the layout is hand-written.
inline std::vector<int64_t> MeshOf(const PlacedJob* placed) {
  return placed == nullptr ? std::vector<int64_t>() : placed->plan.mesh;
}

// How the ranks of a job share its work: "placed on mesh 8x8", or the degrees of a hand-written layout.
std::string DescribeLayout(const PlacedJob* placed, const Mesh& mesh);

struct PlacedCapture {
  Captured captured;  // of this rank
  std::shared_ptr<const PlacedJob> job;
  int64_t whole_nodes = 0;  // of the step of one device
};

// Captures the step of the whole batch, and makes it this rank's. The first rank places it for all.
// Groups that the step needs are made, where there is a world.
PlacedCapture CapturePlaced(const StepRequest& request, const EpOverlapSection& overlap);

// What a placed job would take with one choice of chunks or another: its plans are searched once, and
// judged for each choice. This rank alone; no group is made.
class PlacedPredictor {
 public:
  // The request is used as long as this lives. Its model may have fewer layers than the job's, unless the
  // job trains a stored plan.
  explicit PlacedPredictor(const StepRequest& request);

  // Whether rows travel to their experts under any of the plans: what chunks are there to hide.
  bool MovesRows();
  // Of the fastest plan. Fails like the compiler if no plan can be cut like that.
  Prediction Predict(const EpOverlapSection& overlap);

 private:
  const StepRequest& request_;
  SingleDeviceStep whole_;
  std::optional<PlanFinder> finder_;  // nothing: the plan is stored
  placement::Plan stored_;
};

// Whether the memory policy of a placed job is carried out before its step is placed, so that no later pass
// does it again. Offloading moves what is placed already, and AutoParallel's backend has a policy of its own in
// place of the job's.
bool AppliesPolicyFirst(const Config& config);

// The loss alone of a model that is not trained, placed like the step of the job: parameters and batches
// are where that has them. Its only output is the loss.
Captured CapturePlacedLoss(const StepRequest& request, const PlacedJob& job);

// The groups that a placed step names, in the order of their names, which is the same for all ranks.
void MakeMeshGroups(World& world, const Graph& graph, const MeshRank& rank);

// The parts of parameters that this rank stores, as the plan says. Before the model has memory.
void KeepPlacedParts(LanguageModel& model, const PlacedJob& job);

}  // namespace gt
