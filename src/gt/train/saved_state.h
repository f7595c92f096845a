// What state.json of a checkpoint says. Checksums tell what the disk changed, not what a person or
// another program wrote, so every key is checked before a run relies on it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gt/storage/best_checkpoint.h"

namespace gt {

// Of the data: the loaders of all ranks that read different data, in the order of the mesh's batch
// axis.
struct DataProgress {
  std::vector<nlohmann::json> loaders;  // none: of weights that no run continues
  int64_t rows = 0;                     // of every batch; 0: as many as the run that loads it has
};

struct SavedState {
  int64_t step = 0;
  int64_t tokens = 0;
  int64_t batches = 0;
  nlohmann::json identity;  // an object
  DataProgress data;
  std::optional<std::string> config;  // as TOML; nothing in checkpoints of the first version
  std::optional<BestCheckpoint> best;
};

// Of the checkpoint of `step` in `folder`. CheckpointDamaged names the folder and the key that is
// missing, has another type, or contradicts `step`.
SavedState ReadSavedState(const nlohmann::json& state, int64_t step, const std::string& folder);

}  // namespace gt
