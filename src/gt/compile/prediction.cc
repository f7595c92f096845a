#include "gt/compile/prediction.h"

#include <algorithm>

#include "gt/compile/configured_model.h"
#include "gt/compile/expert_loads.h"
#include "gt/compile/memory_capacity.h"
#include "gt/compile/step_capture.h"
#include "gt/compile/step_compiler.h"
#include "gt/job/config.h"
#include "gt/sim/memory_curve.h"

namespace gt {

Prediction PredictStep(const Config& config, const Mesh& mesh, World* world, c10::Device device,
                       const JobCluster& cluster) {
  ModelPtr model =
      world != nullptr ? BuildConfiguredModel(config, *world, mesh) : BuildConfiguredModel(config);
  const EpOverlapSection& overlap = config.compile.ep_overlap;
  const StepRequest request{.model = *model,
                            .config = config,
                            .device = device,
                            .mesh = mesh,
                            .world = world,
                            .cluster = cluster};
  Captured captured = CaptureUncompiled(request, overlap);
  ApplyLoads(*captured.graph, LoadsToPlanFor(request));
  StepCompiler compiler(config, mesh, world, device, cluster, StepCompiler::Audience::kSelf);
  compiler.Compile(*captured.graph, overlap);
  Prediction prediction;
  prediction.microseconds = compiler.StepMicroseconds(*captured.graph);
  prediction.peak = MeasureMemory(*captured.graph, StepMemory(config, mesh)).peak;
  if (const int64_t capacity = MemoryCapacity(config, world, device); capacity > 0) {
    prediction.excess = std::max<int64_t>(0, prediction.peak - capacity);
  }
  return prediction;
}

}  // namespace gt
