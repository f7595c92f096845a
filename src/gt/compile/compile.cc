#include "gt/compile/compile.h"

#include <chrono>
#include <utility>

#include "gt/base/error.h"
#include "gt/compile/expert_loads.h"
#include "gt/compile/overlap_choice.h"
#include "gt/compile/post_trace_policy.h"
#include "gt/compile/step_capture.h"
#include "gt/compile/step_compiler.h"
#include "gt/job/config.h"
#include "gt/parallel/chunk_modules.h"
#include "gt/passes/memory/memory_policy.h"
#include "gt/passes/pipeline/pipeline.h"

namespace gt {
namespace {

using Clock = std::chrono::steady_clock;

void CaptureInto(CompiledStep& step, const StepRequest& request, const EpOverlapSection& overlap) {
  const Clock::time_point start = Clock::now();
  Captured captured;
  if (request.config.compile.enable_autoparallel) {
    PlacedCapture made = CapturePlaced(request, overlap);
    step.placed = std::move(made.job);
    step.captured_nodes = made.whole_nodes;
    captured = std::move(made.captured);
  } else {
    captured = CaptureUncompiled(request, overlap);
    step.captured_nodes = captured.graph->node_count();
  }
  step.capture_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (step.placed) step.capture_seconds -= step.placed->seconds;
  step.graph = std::move(captured.graph);
  step.bound_inputs = std::move(captured.bound_inputs);
}

void RunPasses(CompiledStep& step, const StepRequest& request, const EpOverlapSection& overlap) {
  Config config = request.config;
  if (step.placed && AppliesPolicyFirst(config)) config.compile.memory_policy = MemoryPolicy::kNone;
  auto compiler = std::make_shared<StepCompiler>(config, request.mesh, request.world,
                                                 request.device, request.cluster);
  if (step.placed) compiler->PlaceOn(placement::DeviceMesh(step.placed->plan.mesh));
  step.passes = compiler->Compile(*step.graph, overlap);
  step.predicted = compiler->Predict(*step.graph);
  step.prediction_is_known = compiler->predictions_are_known();
  step.chunked = overlap.enabled == AutoSwitch::kTrue;
  if (compiler->can_replan()) step.replanner = std::move(compiler);
}

}  // namespace

CompiledStep Compile(const StepRequest& request) {
  const Config& config = request.config;
  if (config.mesh != Config().mesh && !config.compile.enable_autoparallel) {
    Fail(ErrorCode::kConflictingOptions,
         "mesh {} has axes for a step that is placed, but compile.enable_autoparallel is off: "
         "parallelism.* says how a hand-written layout shares the work",
         config.mesh);
  }
  // What is mistyped is no failure of a pass.
  ReadSaveSelectors({config.compile.memory_policy, config.compile.full_recompute_save_ops});
  ChangedPipeline({}, config.compile.passes);
  CompiledStep step;
  EpOverlapSection overlap = config.compile.ep_overlap;
  if (overlap.enabled == AutoSwitch::kAuto) {
    OverlapChoice choice = ChooseOverlap(request);
    overlap = choice.overlap;
    step.choice = std::move(choice.reasons);
  }
  const bool cuts = overlap.enabled == AutoSwitch::kTrue;
  if (cuts) overlap.module_fqn = ChunkedModulesPattern(request.model, overlap);
  CaptureInto(step, request, overlap);
  if (cuts && !step.placed) RequireCalled(SelectChunkedModules(request.model, overlap));
  step.loads = step.placed ? LoadsToPlanFor(request, step.placed->step,
                                            placement::DeviceMesh(step.placed->plan.mesh))
                           : LoadsToPlanFor(request);
  ApplyLoads(*step.graph, step.loads);
  if (config.compile.enable_passes) RunPasses(step, request, overlap);
  return step;
}

}  // namespace gt
