// The training loop: batches, step, update, metrics, checkpoints, until the last step or a signal.
#pragma once

#include <chrono>
#include <cstdint>

#include "gt/train/job.h"
#include "gt/train/metrics.h"
#include "gt/train/micro_batches.h"
#include "gt/train/run_reports.h"
#include "gt/train/running_step.h"
#include "gt/train/signals.h"
#include "gt/train/step/optimizer.h"
#include "gt/train/summary.h"
#include "gt/train/training_state.h"

namespace gt {

class Loop {
 public:
  using Clock = std::chrono::steady_clock;

  // The parts must outlive it.
  Loop(Job& job, TrainingState& state, RunningStep& running, RunReports& reports);

  // Steps and losses of the summary, and the signal that ended the loop.
  TrainSummary Run(SignalWatch& signals);

  int64_t first_step() const { return first_step_; }  // steps that were done before
  double seconds() const;                             // since the beginning
  // Of it, training: without validation and checkpoints.
  double training_seconds() const { return training_seconds_; }

 private:
  StepMetrics OneStep(const TakenBatches& taken, const SignalWatch& signals);
  Clipping SumUp(const StepResult& result, StepMetrics* metrics);
  void BeforeUpdate(StepMetrics* metrics);
  void FillRates(StepMetrics& metrics) const;

  Job& job_;
  TrainingState& state_;
  RunningStep& running_;
  RunReports& reports_;
  int64_t first_step_;
  double training_seconds_ = 0;
  Clock::time_point start_, before_;
};

}  // namespace gt
