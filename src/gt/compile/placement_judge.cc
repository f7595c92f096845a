#include "gt/compile/placement_judge.h"

#include <algorithm>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "gt/base/byte_text.h"
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

// No step on GPUs was seen to take less than this part of what placement's costs say of it; most take longer,
// since moves hide only behind kernels that are there when they run (docs/placement.md). Packed collectives
// save most where a collective costs much by itself, as it does between ranks on CPUs.
constexpr double kLeastOfPrice = 0.85, kLeastOfPriceOnCpu = 0.5;

// Plans are judged two at a time, by what was known before both: which one is chosen does not depend on how
// many threads there are.
constexpr size_t kAtATime = 2;

// Generated kernels take a third of the time that passes take, and are much the same for all plans. All
// policies after the trace share one placement, so that they also share the judge's.
Config JudgedConfig(Config config) {
  config.compile.inductor_compilation = InductorCompilation::kNone;
  return config;
}

// Of what `step` becomes on this rank; nothing is made for it. Any thread may do it.
Prediction Judge(const StepRequest& request, Config config, const EpOverlapSection& overlap,
                 Graph& step, const Plan& plan) {
  const PlacedStep placed = ApplyPlacement(step, plan, request.mesh.rank());
  ApplyLoads(step, LoadsToPlanFor(request, placed, placement::DeviceMesh(plan.mesh)));
  if (AppliesPolicyFirst(config)) config.compile.memory_policy = MemoryPolicy::kNone;
  StepCompiler compiler(config, request.mesh, nullptr, request.device, request.cluster,
                        StepCompiler::Audience::kSelf);
  compiler.PlaceOn(placement::DeviceMesh(plan.mesh));
  if (config.compile.enable_passes) compiler.Compile(step, overlap);
  Prediction prediction;
  prediction.microseconds = compiler.StepMicroseconds(step);
  const int64_t capacity = MemoryCapacity(request.config, request.world, request.device);
  if (capacity > 0) {
    prediction.peak = MeasureMemory(step, StepMemory(request.config, request.mesh, plan.mesh)).peak;
    prediction.excess = std::max<int64_t>(0, prediction.peak - capacity);
  }
  return prediction;
}

// Operators are measured one at a time.
bool MayUseThreads(const Config& config) {
  return config.threads != 1 && config.compile.costs != CostSource::kMeasured;
}

// What is predicted of a plan, or why it cannot be carried out.
struct Verdict {
  std::optional<Prediction> prediction = std::nullopt;
  std::exception_ptr problem = nullptr;
};

// Steps are captured by the thread that asks; what follows needs no libtorch.
std::future<Verdict> StartJudging(const StepRequest& request, const Config& config,
                                  const EpOverlapSection& overlap, SingleDeviceStep& whole,
                                  const Plan& plan) {
  const auto refused = [&plan](const Error& error) -> Verdict {
    log::Debug("a plan of {:.2f} ms by its own costs: {}", plan.step_us / 1e3, error.what());
    return {.problem = std::current_exception()};
  };
  std::shared_ptr<Graph> step;
  try {
    step = whole.For(plan, overlap).graph;
  } catch (const Error& error) {
    return std::async(std::launch::deferred, [verdict = refused(error)] { return verdict; });
  }
  const auto when = MayUseThreads(config) ? std::launch::async : std::launch::deferred;
  return std::async(when, [&, refused, step = std::move(step)]() -> Verdict {
    try {
      return {.prediction = Judge(request, config, overlap, *step, plan)};
    } catch (const Error& error) {
      return refused(error);
    }
  });
}

}  // namespace

FastestOf FastestPlan(const StepRequest& request, const EpOverlapSection& overlap,
                      SingleDeviceStep& step, std::span<const Plan> plans) {
  const Config config = JudgedConfig(request.config);
  const double least = request.device.is_cuda() ? kLeastOfPrice : kLeastOfPriceOnCpu;
  std::optional<FastestOf> best;
  std::exception_ptr problem;
  const auto is_too_long = [&best, least](const Plan& plan) {
    return best && best->prediction.excess == 0 &&
           least * plan.step_us > best->prediction.microseconds;
  };
  for (size_t next = 0; next < plans.size();) {
    std::vector<std::pair<size_t, std::future<Verdict>>> trials;
    for (; next < plans.size() && trials.size() < kAtATime; ++next) {
      if (is_too_long(plans[next])) {
        log::Debug("placement candidate {}: {:.2f} ms by its own costs, too long to be the fastest",
                   next, plans[next].step_us / 1e3);
        continue;
      }
      trials.emplace_back(next, StartJudging(request, config, overlap, step, plans[next]));
    }
    for (auto& [i, trial] : trials) {
      const Verdict verdict = trial.get();
      if (!verdict.prediction) {
        if (!problem) problem = verdict.problem;
        continue;
      }
      log::Debug(
          "placement candidate {}: {:.2f} ms and {} by its own costs, {:.2f} ms and {} after all "
          "passes",
          i, plans[i].step_us / 1e3, ByteText(plans[i].peak_bytes),
          verdict.prediction->microseconds / 1e3, ByteText(verdict.prediction->peak));
      const JudgedPlan judged{i, *verdict.prediction};
      if (!best) best = {judged, judged, {}};
      best->judged.push_back(judged);
      if (judged.prediction.IsBetterThan(best->prediction)) {
        static_cast<JudgedPlan&>(*best) = judged;
      }
      if (judged.prediction.microseconds < best->unlimited.prediction.microseconds) {
        best->unlimited = judged;
      }
    }
  }
  if (!best) std::rethrow_exception(problem);
  return *best;
}

Prediction PredictPlan(const StepRequest& request, const EpOverlapSection& overlap,
                       SingleDeviceStep& step, const Plan& plan) {
  return Judge(request, request.config, overlap, *step.For(plan, overlap).graph, plan);
}

}  // namespace gt
