// A job whose placement is found (--compile.enable_autoparallel): the step of one device is captured,
// placed on the mesh of the ranks, and rewritten into this rank's.
#pragma once

#include <map>
#include <memory>
#include <string>

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
  std::string rival;  // the best hand-written layout, by the same costs; empty: not known
  double rival_us = 0;
  double seconds = 0;  // that finding it took
};

struct PlacedCapture {
  Captured captured;  // of this rank
  std::shared_ptr<const PlacedJob> job;
  int64_t whole_nodes = 0;  // of the step of one device
};

// Captures the step of the whole batch, and makes it this rank's. The first rank places it for all.
// Groups that the step needs are made, where there is a world.
PlacedCapture CapturePlaced(const StepRequest& request, const EpOverlapSection& overlap);

// Whether the memory policy of a placed job is carried out before its step is placed, so that no later pass
// does it again. Offloading moves what is placed already.
bool AppliesPolicyFirst(const Config& config);

// The loss alone of a model that is not trained, placed like the step of the job: parameters and batches
// are where that has them. Its only output is the loss.
Captured CapturePlacedLoss(const StepRequest& request, const PlacedJob& job);

// The groups that a placed step names, in the order of their names, which is the same for all ranks.
void MakeMeshGroups(World& world, const Graph& graph, const MeshRank& rank);

// The parts of parameters that this rank stores, as the plan says. Before the model has memory.
void KeepPlacedParts(LanguageModel& model, const PlacedJob& job);

}  // namespace gt
