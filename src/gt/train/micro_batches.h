// One update's worth of batches: loss and gradients of all of them, added up.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "gt/train/job.h"
#include "gt/train/run_reports.h"
#include "gt/train/running_step.h"
#include "gt/train/step/batch.h"
#include "gt/train/step/step.h"
#include "gt/train/training_state.h"

namespace gt {

struct TakenBatches {
  std::vector<Batch> batches;
  int64_t valid_tokens = 0;                 // of all ranks
  std::vector<nlohmann::json> data_before;  // the readers' places
  double waited_seconds = 0;                // for data
  int signal = 0;  // agreed on by all ranks; not 0: the run ends, and these batches are not run
};

// The batches of the next step. `signal`: what this rank has received; one rank's is for all.
TakenBatches TakeBatches(Job& job, int signal);

// Runs the batches of step `step`. Loss and gradients are divided by the tokens of all batches on all ranks.
StepResult RunMicroBatches(Job& job, TrainingState& state, RunningStep& running,
                           RunReports& reports, int64_t step, const TakenBatches& taken);

}  // namespace gt
