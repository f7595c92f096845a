// The training loop: model, data, step, optimizer, metrics.
#pragma once

#include <string>

#include "gt/config/config.h"

namespace gt {

class World;

struct TrainSummary {
  int64_t steps = 0;
  double first_loss = 0;
  double last_loss = 0;
  // Of all parameters and buffers; the same however they are spread over ranks (train/state_hash.h).
  uint64_t state_hash = 0;
  std::string metrics_path;
  int signal = 0;  // the one that ended the run early, or 0
  // Most that the first rank has allocated on its device, and what was predicted; 0: not known.
  int64_t peak_memory = 0, predicted_memory = 0;
};

// Trains as configured, printing a line per step and a summary to standard output. The ranks are those
// that --ranks or a launcher asks for.
TrainSummary Train(const Config& config);

// One rank's part of that; the summary is the same on every rank, but for the path of the metrics,
// which the first rank alone has.
TrainSummary Train(const Config& config, World& world);

}  // namespace gt
