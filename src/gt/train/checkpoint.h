// Everything that a bitwise-equal continuation of a run needs, as one list of tensors and one JSON
// object.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "gt/config/config.h"
#include "gt/models/model.h"
#include "gt/storage/async_saver.h"
#include "gt/train/optimizer.h"

namespace gt {

// What a run is at the end of a step, besides its tensors.
struct Progress {
  int64_t step = 0;     // steps that are done
  int64_t tokens = 0;   // seen so far
  nlohmann::json data;  // of the loader
};

class Checkpointer {
 public:
  Checkpointer(const Config& config, LanguageModel& model, const AdamW& optimizer,
               at::Device device);

  // Creates the folder and makes sure that checkpoints fit onto the disk.
  void Prepare() const;
  // Loads what --checkpoint.load_step asks for, or the latest if there is one; false: there is none.
  // A damaged latest one is skipped with a warning if an older one is whole.
  bool Load(Progress* progress);
  // In the background if configured so; what it writes is copied first. Returns seconds spent.
  double Save(const Progress& progress);
  // Waits for the save under way and reports its error.
  void Wait() { saver_.Wait(); }

  const std::string& folder() const { return folder_; }

 private:
  CheckpointReader OpenLatest(const std::vector<int64_t>& steps) const;
  NamedTensors Tensors() const;

  Config config_;
  LanguageModel& model_;
  const AdamW& optimizer_;
  at::Device device_;
  std::string folder_;
  CheckpointStore store_;
  AsyncSaver saver_;
};

// Writes one checkpoint into `folder`, now.
void SaveCheckpointTo(const std::string& folder, const Config& config, LanguageModel& model,
                      const AdamW& optimizer, at::Device device, const Progress& progress);

// The model's tensors of a checkpoint folder's latest (or given) step, for commands that need the
// weights alone. Returns the step.
int64_t LoadModelFromCheckpoint(const std::string& folder, int64_t step, LanguageModel& model);

}  // namespace gt
