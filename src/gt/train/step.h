// One train step: from a batch to the loss and the gradients. Eager runs the model under libtorch's
// autograd; captured runs the same step as one graph. The rest of the trainer cannot tell them
// apart, and neither can the bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gt/config/config.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/exec/program.h"
#include "gt/models/model.h"
#include "gt/passes/framework/manager.h"
#include "gt/sim/memory_curve.h"
#include "gt/sim/routing_loads.h"
#include "gt/sim/timeline.h"
#include "gt/trace/capture.h"
#include "gt/train/batch.h"
#include "gt/train/loss.h"

namespace gt {

struct StepResult {
  at::Tensor loss;  // a scalar, on the device
  std::vector<at::Tensor>
      gradients;  // in the order of model.parameters(); undefined where there is none
};

class StepCompiler;

class TrainStep {
 public:
  virtual ~TrainStep() = default;
  // The loss is divided by `valid_tokens`, which may count the tokens of several batches whose
  // gradients are added up.
  virtual StepResult Run(const Batch& batch, int64_t valid_tokens) = 0;
  // The tensors of a result are overwritten by the next run: copy what must outlive it.
  virtual bool reuses_results() const { return false; }
  // The graph that runs, and the value of each of its symbols in the last run; null for an eager step.
  virtual const Graph* graph() const { return nullptr; }
  virtual std::span<const int64_t> symbol_values() const { return {}; }
  // Goes on with the same nodes in another order.
  virtual void Reorder(std::unique_ptr<Graph> graph);
};

LossConfig LossConfigOf(const Config& config, const LanguageModel& model);

std::unique_ptr<TrainStep> MakeEagerStep(LanguageModel& model, const LossConfig& loss);

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

struct ExecutionOptions {
  ExecutorKind executor = ExecutorKind::kFast;
  // A step on a GPU that never waits for the device becomes a CUDA graph after two ordinary runs.
  bool device_graph = false;
  // What else is in the device's memory: for the table of a step that runs out of it.
  MemoryOptions memory = {};
};

// Runs a captured step with the parameters and buffers that the model has now: it may have been
// captured before they had memory.
std::unique_ptr<TrainStep> MakeCapturedStep(LanguageModel& model, Captured captured,
                                            ExecutionOptions options = {});

// Casts parameters to `dtype` wherever they are used; gradients come back in the stored dtype.
void CastParametersForCompute(LanguageModel& model, at::ScalarType dtype);

}  // namespace gt
