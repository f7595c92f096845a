#include "gt/train/step_plan.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "gt/base/logging.h"
#include "gt/compile/memory_capacity.h"
#include "gt/dist/agreement.h"
#include "gt/nn/module.h"
#include "gt/report/overlap_report.h"
#include "gt/storage/checkpoint_store.h"
#include "gt/train/announcements.h"
#include "gt/train/checkpoint.h"
#include "gt/train/memory_fit.h"

namespace gt {

void AgreeOnModel(World& world, LanguageModel& model) {
  std::string text;
  for (const nn::StateTensor& state : nn::NamedState(model)) {
    text += fmt::format("{} {} [{}]\n", state.name, c10::toString(state.tensor.scalar_type()),
                        fmt::join(state.box.whole, ", "));
  }
  AgreeOnText(world, "model", text,
              "files that a model is built from (--model.hf_path) must have the same contents on "
              "every machine");
}

namespace {

// The plan that a placed run has followed up to the checkpoint it continues from; empty: it has none. Only
// the first rank has to know.
std::string PlanSoFar(const Job& job) {
  if (!job.folder || !job.config.checkpoint.enable) return "";
  const std::string path = job.folder->Path(kPlanFile);
  std::error_code ignored;
  const bool continues = !CheckpointStore(CheckpointFolder(job.config)).CompleteSteps().empty();
  return continues && std::filesystem::exists(path, ignored) ? path : "";
}

bool WillRecord(const Job& job, const MemoryCurve& curve) {
  const Config& config = job.config;
  return RecordsSteps(config) && (!config.training.check_memory || RecordingsFit(job, curve));
}

}  // namespace

std::optional<StepPlan> PlanStep(Job& job) {
  if (job.config.compile.mode == CompileMode::kEager) {
    AgreeOnModel(job.world, *job.model);
    return std::nullopt;
  }
  StepPlan plan;
  plan.compiled = Compile({.model = *job.model,
                           .config = job.config,
                           .device = job.device,
                           .mesh = job.mesh,
                           .world = &job.world,
                           .cluster = job.cluster,
                           .continued_plan = PlanSoFar(job)});
  if (plan.compiled.placed) job.Follow(plan.compiled.placed);
  const Graph& graph = *plan.compiled.graph;
  AgreeOnCollectives(job.world, graph);
  plan.memory = StepMemory(job.config, job.mesh, MeshOf(plan.compiled.placed.get()));
  const MemoryCurve curve = MeasureMemory(graph, plan.memory);
  plan.predicted_peak = AllocatedPeak(curve);
  AnnounceStep(job, plan.compiled, curve);
  if (plan.compiled.predicted && plan.compiled.prediction_is_known) {
    plan.overlap_table = OverlapTable(graph, *plan.compiled.predicted, curve.peak);
  }
  if (job.config.training.check_memory) RequireFit(job, graph, curve);
  plan.cuda_graphs = WillRecord(job, curve);
  return plan;
}

}  // namespace gt
