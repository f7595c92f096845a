#include "gt/train/running_step.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <utility>

#include "gt/compile/configured_model.h"
#include "gt/fusion/kernel_store.h"
#include "gt/kernels/device_function.h"
#include "gt/train/announcements.h"
#include "gt/train/step/captured_step.h"
#include "gt/train/step/eager_step.h"

namespace gt {

RunningStep::RunningStep(Job& job, std::optional<StepPlan> plan, int64_t first_step) {
  const std::string& cache = job.config.compile.kernel_cache;
  const std::filesystem::path kernels =
      cache.empty() ? fusion::DefaultKernelFolder() : std::filesystem::path(cache);
  UseKernelFolder(kernels);
  if (!plan) {
    step_ = MakeEagerStep(*job.model, LossConfigOf(job.config, *job.model));
    AnnounceEager(job);
    return;
  }
  const CompileSection& compile = job.config.compile;
  memory_ = std::move(plan->memory);
  predicted_peak_ = plan->predicted_peak;
  predicts_ = plan->compiled.prediction_is_known;
  if (predicts_) predicted_ = std::move(plan->compiled.predicted);
  replanner_ = std::move(plan->compiled.replanner);
  RoutingLoads planned_loads = std::move(plan->compiled.loads);
  step_ = MakeCapturedStep(*job.model, std::move(plan->compiled),
                           {.executor = compile.executor,
                            .device_graphs = plan->cuda_graphs,
                            .records_collectives = FactsOf(job.world.backend()).recordable,
                            .kernel_store = kernels,
                            .memory = memory_});
  if (!replanner_) return;
  loads_.emplace(job.world, compile.ep_overlap.replan_interval, first_step);
  loads_->SetPlan(*step_->graph(), std::move(planned_loads));
}

StepResult RunningStep::Run(const Batch& batch, int64_t valid_tokens) {
  at::AutoGradMode gradients(true);
  StepResult result = step_->Run(batch, valid_tokens);
  if (loads_) loads_->Add(step_->symbol_values());
  return result;
}

std::string RunningStep::FollowLoads(StepMetrics& metrics) {
  if (!loads_) return "";
  std::optional<LoadWatch::Agreement> agreed = loads_->AfterStep(metrics.step);
  if (!agreed) return "";
  metrics.load_imbalance = agreed->imbalance;
  if (!agreed->renew) return "";
  const double before = predicted_ ? predicted_->step : 0;
  std::unique_ptr<Graph> graph = replanner_->Unordered();
  ApplyLoads(*graph, agreed->loads);
  replanner_->Order(*graph);
  if (predicts_) predicted_ = replanner_->Predict(*graph);
  predicted_peak_ = AllocatedPeak(MeasureMemory(*graph, memory_));
  step_->Reorder(std::move(graph));
  loads_->SetPlan(*step_->graph(), agreed->loads);
  std::string text = "new order: " + agreed->Describe();
  if (predicted_) {
    text += fmt::format("; predicted step {:.1f} ms (the old plan said {:.1f})",
                        predicted_->step / 1e3, before / 1e3);
  }
  return text;
}

}  // namespace gt
