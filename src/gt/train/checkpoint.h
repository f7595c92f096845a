// Everything that a bitwise-equal continuation of a run needs, as one list of tensors and one JSON
// object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/job/trajectory.h"
#include "gt/models/model.h"
#include "gt/storage/async_saver.h"
#include "gt/storage/best_checkpoint.h"
#include "gt/storage/file_writer.h"
#include "gt/train/job_share.h"
#include "gt/train/saved_state.h"
#include "gt/train/step/optimizer.h"

namespace gt {

// What a run is at the end of a step, besides its tensors.
struct Progress {
  int64_t step = 0;                       // steps that are done
  int64_t tokens = 0;                     // seen so far, by all ranks
  int64_t batches = 0;                    // taken from each rank's loader
  std::vector<nlohmann::json> data = {};  // of this rank's readers
  // The step with the lowest validation loss, if the best checkpoint is kept.
  std::optional<BestCheckpoint> best = {};
};

// Every rank of the job has one, and all make the same calls. A rank writes and reads its shards of
// the tensors; a checkpoint made under one layout can be loaded under any other.
class Checkpointer {
 public:
  Checkpointer(const Config& config, LanguageModel& model, const AdamW& optimizer,
               at::Device device, World& world, const JobShare& share);

  // Creates the folder and makes sure that a checkpoint can be written there.
  void Prepare() const;
  // The disk space that checkpoints after `step` will need beyond the existing ones. Those that
  // --checkpoint.keep_latest_k 0 keeps forever count as one, since somebody may move them away: the
  // disk may be full later, which is logged.
  SpaceNeed SpaceAfter(int64_t step) const;
  // Loads what --checkpoint.load_step asks for, or the latest if there is one; nothing: there is none.
  // A damaged latest one is skipped with a warning if an older one is whole. Fills `progress` but for
  // the state of the loader.
  std::optional<DataProgress> Load(Progress* progress);
  // In the background if configured so; what it writes is copied first. Returns seconds spent. Older
  // checkpoints but the best one are removed once it is complete.
  double Save(const Progress& progress);
  // Returns when the checkpoint is on the disk, and so are those before it. Nothing is copied.
  void SaveAndWait(const Progress& progress);
  // The same into another folder, in which nothing is removed.
  void SaveTo(const std::string& folder, const Progress& progress);

  const std::string& folder() const { return folder_; }
  // What this run does otherwise than the one that made the loaded checkpoint.
  const std::vector<OptionChange>& changes() const { return changes_; }

 private:
  // What a checkpoint is written from: copies, so that training can go on meanwhile, or the tensors
  // themselves.
  enum class Source { kCopies, kTensors };

  std::vector<nn::StateTensor> ModelAndOptimizer() const;
  std::vector<TensorPart> PartsFrom(Source source) const;
  int64_t BytesOfOne() const;
  // The whole save of one rank; several run at the same time.
  std::function<void()> SaveTask(const CheckpointStore& store, const Progress& progress,
                                 const Retention& retention, Source source);
  Retention RetentionAt(const Progress& progress) const;
  // The best checkpoint according to the state of a checkpoint made with the configuration `before`,
  // if it is among the complete `steps` and its loss still compares.
  std::optional<BestCheckpoint> BestIn(const SavedState& state, const std::optional<Config>& before,
                                       const std::vector<int64_t>& steps) const;
  // The newest of `steps` that is whole, and what its state.json says.
  CheckpointReader Open(const std::vector<int64_t>& steps, SavedState* state);
  std::vector<int64_t> AgreeOnSteps();

  Config config_;
  LanguageModel& model_;
  const AdamW& optimizer_;
  at::Device device_;
  World& world_;
  JobShare share_;
  std::string folder_;
  CheckpointStore store_;
  AsyncSaver saver_;
  std::vector<OptionChange> changes_;
  int64_t saves_ = 0;  // counted alike on all ranks: names of one save's messages
};

// dump_folder/checkpoint, or where --checkpoint.folder says.
std::string CheckpointFolder(const Config& config);

// The model's tensors of a checkpoint folder's latest (or given) step, for commands that need the
// weights alone. Returns the step.
int64_t LoadModelFromCheckpoint(const std::string& folder, int64_t step, LanguageModel& model);

}  // namespace gt
