#include "gt/train/step_plan.h"

#include <utility>

#include "gt/compile/memory_capacity.h"
#include "gt/dist/agreement.h"
#include "gt/report/overlap_report.h"
#include "gt/train/announcements.h"
#include "gt/train/memory_fit.h"

namespace gt {

std::optional<StepPlan> PlanStep(Job& job) {
  const bool eager = job.config.compile.mode == CompileMode::kEager;
  if (eager && job.world.size() == 1) return std::nullopt;
  Config planned = job.config;
  if (eager) planned.compile.costs = CostSource::kEstimated;  // only collectives are looked at
  StepPlan plan;
  plan.compiled = Compile({.model = *job.model,
                           .config = planned,
                           .device = job.device,
                           .mesh = job.mesh,
                           .world = &job.world});
  const Graph& graph = *plan.compiled.graph;
  AgreeOnCollectives(job.world, graph);
  if (eager) return std::nullopt;  // captured for the sake of that comparison
  plan.memory = StepMemory(job.config, job.mesh);
  const MemoryCurve curve = MeasureMemory(graph, plan.memory);
  plan.predicted_peak = AllocatedPeak(curve);
  AnnounceStep(job, plan.compiled, curve);
  if (plan.compiled.predicted) {
    plan.overlap_table = OverlapTable(graph, *plan.compiled.predicted, curve.peak);
  }
  if (job.config.training.check_memory) RequireFit(job, graph, curve);
  return plan;
}

}  // namespace gt
