#include "gt/compile/placement_judge.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/compile/expert_loads.h"
#include "gt/compile/memory_capacity.h"
#include "gt/compile/placed_step.h"
#include "gt/compile/step_compiler.h"
#include "gt/job/config.h"
#include "gt/sim/memory_curve.h"

namespace gt {
namespace {

using placement::Plan;

// The less, the better.
std::pair<int64_t, double> Order(const Prediction& prediction) {
  return {prediction.excess, prediction.microseconds};
}

// No step was seen to take less than this part of what placement's costs say of it; most take longer, since
// moves hide only behind kernels that are there when they run (docs/placement.md).
constexpr double kLeastOfPrice = 0.85;

// Generated kernels take a third of the time that passes take, and are much the same for all plans. All
// policies after the trace share one placement, so that they also share the judge's.
Config JudgedConfig(Config config) {
  config.compile.inductor_compilation = InductorCompilation::kNone;
  return config;
}

// Of the step that this rank would run; nothing is made for it.
Prediction Judge(const StepRequest& request, Config config, const EpOverlapSection& overlap,
                 SingleDeviceStep& whole, const Plan& plan) {
  const std::unique_ptr<Graph> step = whole.For(plan, overlap).graph;
  const PlacedStep placed = ApplyPlacement(*step, plan, request.mesh.rank());
  ApplyLoads(*step, LoadsToPlanFor(request, placed, placement::DeviceMesh(plan.mesh)));
  if (AppliesPolicyFirst(config)) config.compile.memory_policy = MemoryPolicy::kNone;
  StepCompiler compiler(config, request.mesh, nullptr, request.device,
                        StepCompiler::Audience::kSelf);
  compiler.PlaceOn(placement::DeviceMesh(plan.mesh));
  if (config.compile.enable_passes) compiler.Compile(*step, overlap);
  Prediction prediction;
  const std::optional<Timeline> timeline = compiler.Predict(*step);
  prediction.microseconds = timeline ? timeline->step : plan.step_us;
  const int64_t capacity = MemoryCapacity(request.config, request.world, request.device);
  if (capacity > 0) {
    prediction.peak = MeasureMemory(*step, StepMemory(request.config, request.mesh)).peak;
    prediction.excess = std::max<int64_t>(0, prediction.peak - capacity);
  }
  return prediction;
}

}  // namespace

FastestOf FastestPlan(const StepRequest& request, const EpOverlapSection& overlap,
                      SingleDeviceStep& step, const std::vector<Plan>& plans) {
  const Config config = JudgedConfig(request.config);
  std::optional<FastestOf> best;
  std::exception_ptr problem;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (best && best->prediction.excess == 0 &&
        kLeastOfPrice * plans[i].step_us > best->prediction.microseconds) {
      log::Debug("placement candidate {}: {:.2f} ms by its own costs, too long to be the fastest",
                 i, plans[i].step_us / 1e3);
      continue;
    }
    try {
      const Prediction prediction = Judge(request, config, overlap, step, plans[i]);
      log::Debug("placement candidate {}: {:.2f} ms by its own costs, {:.2f} ms after all passes",
                 i, plans[i].step_us / 1e3, prediction.microseconds / 1e3);
      if (!best || Order(prediction) < Order(best->prediction)) best = {i, prediction};
    } catch (const Error& error) {
      log::Debug("placement candidate {}: {}", i, error.what());
      if (!problem) problem = std::current_exception();
    }
  }
  if (!best) std::rethrow_exception(problem);
  return *best;
}

Prediction PredictPlan(const StepRequest& request, const EpOverlapSection& overlap,
                       SingleDeviceStep& step, const Plan& plan) {
  return Judge(request, request.config, overlap, step, plan);
}

}  // namespace gt
