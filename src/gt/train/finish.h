// The end of a run: the state's hash, the last checkpoint, the weights, the summary.
#pragma once

#include "gt/train/job.h"
#include "gt/train/loop.h"
#include "gt/train/run_reports.h"
#include "gt/train/running_step.h"
#include "gt/train/summary.h"
#include "gt/train/training_state.h"

namespace gt {

// Completes the summary that the loop returned. All ranks must call it.
void Finish(Job& job, TrainingState& state, const RunningStep& running, const RunReports& reports,
            const Loop& loop, TrainSummary& summary);

}  // namespace gt
