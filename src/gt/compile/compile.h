// From a configured job to a compiled step: captures the train step of a model and applies the passes
// of the job.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gt/config/config.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/models/model.h"
#include "gt/passes/framework/manager.h"
#include "gt/sim/routing_loads.h"
#include "gt/sim/timeline.h"
#include "gt/trace/capture.h"

namespace gt {

class StepCompiler;

struct CaptureReport {
  double capture_seconds = 0;
  PipelineReport passes;
  int64_t captured_nodes = 0;
  int64_t nodes = 0;
  // Of a step that communicates, with the costs that --compile.costs stands for. Looks into the graph
  // that was captured.
  std::optional<Timeline> predicted;
  bool chunked = false;
  // With ep_overlap.enabled auto: what was chosen, and why, a line each.
  std::vector<std::string> choice;
  // For ordering the step anew when the loads of experts have changed; null: its order does not
  // depend on them.
  std::shared_ptr<StepCompiler> compiler;
  RoutingLoads loads;  // of experts, that the step was planned for
};

// Captures the step (with the batch dimension symbolic when `symbolic_batch`) and applies the
// configured passes. Dumps and reproducers go to `dump_folder`. `world` is the job's, whose groups a
// step that is to run must find; null for a graph that is only looked at.
Captured CaptureStep(LanguageModel& model, const Config& config, c10::Device device,
                     bool symbolic_batch, CaptureReport* report, const Mesh& mesh = Mesh(),
                     World* world = nullptr);

// What the step of a configured model would take, for comparing configurations: built, captured and
// compiled by this rank alone, without memory. ep_overlap.enabled is not auto.
struct Prediction {
  double microseconds = 0;
  int64_t peak = 0;
  int64_t excess = 0;  // of the peak, beyond what the device has; 0: it fits
};
Prediction PredictStep(const Config& config, const Mesh& mesh, World* world, c10::Device device);

}  // namespace gt
