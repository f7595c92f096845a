// What a run writes while it is running: a line and a bar for people, metrics for programs. Only on
// the first rank; on the others nothing happens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gt/report/progress_bar.h"
#include "gt/report/tensorboard.h"
#include "gt/train/job.h"
#include "gt/train/metrics.h"
#include "gt/train/profile.h"
#include "gt/train/running_step.h"
#include "gt/train/training_state.h"

namespace gt {

class RunReports {
 public:
  // Looks for room on the disk. Nothing is written before the first step is done: then the metrics,
  // config.toml and, if it is not empty, the predicted `overlap_table`.
  RunReports(Job& job, const TrainingState& state, std::string overlap_table);

  // The first step is about to begin; `done` were done by earlier runs.
  void Begin(int64_t done);
  // A line between those of the steps.
  void Interject(const std::string& line);
  void OnStep(StepMetrics metrics);
  // Every rank was observed, and writes a file; the first one tells.
  void OnProfile(StepProfile& profile, int64_t step, const RunningStep& running);
  void End() { bar_->Clear(); }

  // Whether overlap.txt says what communication is predicted to take.
  bool has_overlap_table() const { return !overlap_table_.empty(); }
  // Empty on other ranks than the first.
  std::string metrics_path() const { return job_.folder ? job_.folder->Path("metrics.jsonl") : ""; }

 private:
  void BeginResults();
  void WriteTensorBoard(const StepMetrics& metrics);

  Job& job_;
  const int64_t steps_before_;  // done by the runs that this one continues
  double epochs_per_step_ = 0;  // 0: unknown
  const std::string overlap_table_;
  std::unique_ptr<MetricsFile> metrics_;            // of the first rank, once a step is done
  std::unique_ptr<TensorBoardWriter> tensorboard_;  // likewise, if wanted
  std::unique_ptr<ProgressBar> bar_;
};

}  // namespace gt
