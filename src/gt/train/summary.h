// How a run ended, for programs.
#pragma once

#include <cstdint>
#include <string>

namespace gt {

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

}  // namespace gt
