// From a configured job to a compiled step: captures the train step of a model and applies the passes
// of the job.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gt/compile/placed_step.h"
#include "gt/compile/step_request.h"
#include "gt/ir/graph.h"
#include "gt/passes/framework/manager.h"
#include "gt/sim/routing_loads.h"
#include "gt/sim/timeline.h"

namespace gt {

class StepCompiler;

struct CompiledStep {
  std::unique_ptr<Graph> graph;
  // What the graph's inputs are, in order (trace/capture.h).
  std::vector<at::Tensor> bound_inputs;

  double capture_seconds = 0;
  int64_t captured_nodes = 0;  // before the passes
  PipelineReport passes;
  // Of a step that communicates, with the costs that --compile.costs selects. Refers to `graph`.
  std::optional<Timeline> predicted;
  // Whether that is an estimate for people, and not only what the step was ordered by.
  bool prediction_is_known = true;
  bool chunked = false;
  std::shared_ptr<const PlacedJob> placed;  // null: the layout is hand-written
  // With ep_overlap.enabled auto: what was chosen, and why, a line each.
  std::vector<std::string> choice;
  RoutingLoads loads;  // of experts, that the step was planned for
  // Orders the step anew when the loads of experts have changed; null: its order does not depend on
  // them.
  std::shared_ptr<StepCompiler> replanner;
};

// Captures the step and applies the configured passes. Dumps and reproducers go to the job's
// dump_folder.
CompiledStep Compile(const StepRequest& request);

}  // namespace gt
