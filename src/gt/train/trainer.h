// The training loop: model, data, step, optimizer, metrics.
#pragma once

#include <string>

#include "gt/config/config.h"

namespace gt {

struct TrainSummary {
  int64_t steps = 0;
  double first_loss = 0;
  double last_loss = 0;
  // FNV-1a over names and bytes of all parameters and buffers, in order: equal states have equal
  // hashes.
  uint64_t state_hash = 0;
  std::string metrics_path;
  int signal = 0;  // the one that ended the run early, or 0
};

// Trains as configured, printing a line per step and a summary to standard output.
TrainSummary Train(const Config& config);

}  // namespace gt
