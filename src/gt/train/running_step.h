// The step of a job as it runs, and the plan that it follows: when experts get other numbers of rows
// than it was planned for, the same nodes go on in a new order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gt/compile/step_compiler.h"
#include "gt/sim/memory_curve.h"
#include "gt/sim/timeline.h"
#include "gt/train/job.h"
#include "gt/train/load_watch.h"
#include "gt/train/metrics.h"
#include "gt/train/step/step.h"
#include "gt/train/step_plan.h"

namespace gt {

class RunningStep {
 public:
  // Eager without a plan. `first_step` is the number of the first step of this run.
  RunningStep(Job& job, std::optional<StepPlan> plan, int64_t first_step);

  // With gradients, which the caller need not ask for.
  StepResult Run(const Batch& batch, int64_t valid_tokens);
  // The tensors of a result are overwritten by the next run.
  bool reuses_results() const { return step_->reuses_results(); }

  // After every step, on all ranks. Of a new order, the line that says so; else empty.
  std::string FollowLoads(StepMetrics& metrics);

  // Of a captured step that communicates, where its costs are known.
  const std::optional<Timeline>& predicted() const { return predicted_; }
  int64_t predicted_peak() const { return predicted_peak_; }  // bytes; 0: not known

 private:
  std::unique_ptr<TrainStep> step_;
  MemoryOptions memory_;
  int64_t predicted_peak_ = 0;
  std::optional<Timeline> predicted_;
  bool predicts_ = false;                    // predictions may be shown
  std::shared_ptr<StepCompiler> replanner_;  // null: the order of the step does not depend on loads
  std::optional<LoadWatch> loads_;
};

}  // namespace gt
