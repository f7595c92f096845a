#include "gt/compile/compile.h"

#include <algorithm>
#include <chrono>

#include "gt/compile/configured_model.h"
#include "gt/compile/expert_loads.h"
#include "gt/compile/memory_advice.h"
#include "gt/compile/overlap_choice.h"
#include "gt/compile/step_capture.h"
#include "gt/compile/step_compiler.h"
#include "gt/passes/memory/memory_policy.h"
#include "gt/sim/memory_curve.h"

namespace gt {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Captured CaptureStep(LanguageModel& model, const Config& config, c10::Device device,
                     bool symbolic_batch, CaptureReport* report, const Mesh& mesh, World* world) {
  // A mistyped one is no failure of a pass.
  ReadSaveSelectors({config.compile.memory_policy, config.compile.full_recompute_save_ops});
  CaptureReport made;
  Config::Compile::EpOverlap overlap = config.compile.ep_overlap;
  if (overlap.enabled == AutoSwitch::kAuto) {
    OverlapChoice choice = ChooseOverlap(model, config, mesh, world, device);
    overlap = choice.overlap;
    made.choice = std::move(choice.reasons);
  }
  auto start = std::chrono::steady_clock::now();
  Captured captured = CaptureUncompiled(model, config, overlap, device, symbolic_batch, mesh);
  made.capture_seconds = SecondsSince(start);
  made.captured_nodes = captured.graph->node_count();
  made.loads = LoadsToPlanFor(model, config, mesh, world);
  ApplyLoads(*captured.graph, made.loads);
  if (config.compile.enable_passes) {
    auto compiler = std::make_shared<StepCompiler>(config, mesh, world, device);
    made.passes = compiler->Compile(*captured.graph, overlap);
    made.predicted = compiler->Predict(*captured.graph);
    made.chunked = overlap.enabled == AutoSwitch::kTrue;
    if (compiler->can_replan()) made.compiler = std::move(compiler);
  }
  made.nodes = captured.graph->node_count();
  if (report != nullptr) *report = std::move(made);
  return captured;
}

Prediction PredictStep(const Config& config, const Mesh& mesh, World* world, c10::Device device) {
  ModelPtr model =
      world != nullptr ? BuildConfiguredModel(config, *world, mesh) : BuildConfiguredModel(config);
  const Config::Compile::EpOverlap& overlap = config.compile.ep_overlap;
  Captured captured =
      CaptureUncompiled(*model, config, overlap, device, /*symbolic_batch=*/false, mesh);
  ApplyLoads(*captured.graph, LoadsToPlanFor(*model, config, mesh, world));
  StepCompiler compiler(config, mesh, world, device, StepCompiler::Audience::kSelf);
  compiler.Compile(*captured.graph, overlap);
  Prediction prediction;
  if (auto timeline = compiler.Predict(*captured.graph)) prediction.microseconds = timeline->step;
  prediction.peak = MeasureMemory(*captured.graph, StepMemory(config, mesh)).peak;
  if (const int64_t capacity = MemoryCapacity(config, world, device); capacity > 0) {
    prediction.excess = std::max<int64_t>(0, prediction.peak - capacity);
  }
  return prediction;
}

}  // namespace gt
