// What a run reports: a line per step for people, an object per step in metrics.jsonl for programs.
// Numbers in the file have 17 significant digits, so that two runs can be compared bit by bit.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace gt {

// Of what a step works on, before the update (train/state_hash.h).
struct StepHashes {
  uint64_t gradients = 0, parameters = 0, buffers = 0;
  // Of how many tokens each expert got from all ranks: the same however the step is shared out, as long
  // as routers choose the same.
  std::optional<uint64_t> experts = {};
};

struct StepMetrics {
  int64_t step = 0;  // 1 for the first
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  int64_t tokens = 0;  // seen so far
  double seconds = 0;  // of this step, without validation
  double epoch = -1;   // passes over the data so far; negative: unknown
  double tokens_per_second = 0;
  double mfu = -1;           // percent of the device's peak; negative: unknown
  int64_t memory_bytes = 0;  // the peak so far
  double data_wait = 0;      // seconds this step waited for data
  double eta_seconds = 0;
  std::optional<double> validation_loss = {};
  // Rows at the experts of the fullest rank over those of the average one, when ranks have compared
  // them after this step (train/load_watch.h).
  std::optional<double> load_imbalance = {};
  std::optional<StepHashes> hashes = {};
};

class MetricsFile {
 public:
  // Creates the folder and metrics.jsonl in it; throws when that is not possible, before any work is
  // done. Of an existing file, the lines up to `steps_done` are kept: a continued run writes the
  // same file that an uninterrupted one would have written.
  explicit MetricsFile(const std::string& folder, int64_t steps_done = 0);
  // Flushed to the system immediately: a run that dies keeps every finished step.
  void Write(const StepMetrics& metrics);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::ofstream file_;
};

// "step  12/50  epoch 0.24  loss 2.4581  grad 0.5312  lr 7.20e-04  0.17 s  12,345 tok/s  1.2 GiB  eta 0:32"
std::string ProgressLine(const StepMetrics& metrics, int64_t total_steps);

std::string FormatCount(double count);  // "12,345"

}  // namespace gt
