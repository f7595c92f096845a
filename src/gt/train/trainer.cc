#include "gt/train/trainer.h"

#include <ATen/ATen.h>

#include <new>
#include <optional>
#include <string>
#include <utility>

#include "gt/base/error.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/announcements.h"
#include "gt/train/finish.h"
#include "gt/train/job.h"
#include "gt/train/loop.h"
#include "gt/train/model_fit.h"
#include "gt/train/run_reports.h"
#include "gt/train/running_step.h"
#include "gt/train/signals.h"
#include "gt/train/step_plan.h"
#include "gt/train/training_state.h"

namespace gt {
namespace {

TrainSummary TrainRank(const Config& config, World& world) {
  Job job(config, world);  // mesh, device, folder, model without memory, data
  Introduce(job);
  // Before minutes are spent on parameters: a step that cannot be captured or does not fit is refused
  // here.
  std::optional<StepPlan> plan = PlanStep(job);
  // Every rank has looked at the memory that is left before one of them takes of it.
  world.Barrier();
  TrainingState state(job);  // parameters, optimizer, place in the data
  if (job.config.checkpoint.enable) Resume(job, state);
  RunReports reports(job, state, plan ? plan->overlap_table : "");
  RunningStep step(job, std::move(plan), state.progress.step + 1);
  SignalWatch signals(world.first());  // until the last checkpoint is written
  Loop loop(job, state, step, reports);
  TrainSummary summary = loop.Run(signals);
  Finish(job, state, step, reports, loop, summary);
  return summary;
}

}  // namespace

TrainSummary Train(const Config& config, World& world) {
  Config settled = config;
  SettlePrecision(&settled, ChooseDevice(config.device, world.local_rank()).is_cuda());
  try {
    RequireModelFits(settled, world, ChooseDevice(settled.device, world.local_rank()));
    return TrainRank(settled, world);
  } catch (const c10::OutOfMemoryError& error) {
    // A captured step explains itself (train/step/captured_step.cc); this is what surrounds it, or an
    // eager one.
    Fail(ErrorCode::kDeviceMemoryExhausted,
         "rank {}: there was no memory for parameters, optimizer, batches or an eager step: {}; gt "
         "memory shows what a job needs",
         world.rank(), error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    Fail(
        ErrorCode::kDeviceMemoryExhausted,
        "rank {}: this machine has no memory left for the modules and the graph of the step, which "
        "grow with the number of layers; use fewer layers (--model.n_layers), or run without a "
        "graph with --compile.mode eager",
        world.rank());
  }
}

TrainSummary Train(const Config& config) {
  TrainSummary summary;
  World::Run(config, [&](World& world) {
    TrainSummary mine = Train(config, world);
    if (world.first()) summary = mine;
  });
  return summary;
}

}  // namespace gt
