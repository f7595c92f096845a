// One update's worth of batches: loss and gradients of all of them, added up.
#pragma once

#include <cstdint>

#include "gt/train/job.h"
#include "gt/train/run_reports.h"
#include "gt/train/running_step.h"
#include "gt/train/step/step.h"
#include "gt/train/training_state.h"

namespace gt {

// Takes the batches of step `step` from the data and runs them. Loss and gradients are divided by the
// tokens of all batches on all ranks.
StepResult RunMicroBatches(Job& job, TrainingState& state, RunningStep& running,
                           RunReports& reports, int64_t step);

}  // namespace gt
