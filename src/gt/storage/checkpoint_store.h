// Training checkpoints below one folder, one sub-folder per step:
//
//   checkpoint/step-00000010/tensors-00001-of-00002.safetensors   readable by any tool
//                            tensors-00002-of-00002.safetensors
//                            state.json                           everything that is not a tensor
//                            manifest.json                        sizes and checksums of the others
//
// A step's folder appears by one rename when everything in it is on the disk. Whenever the process
// or the machine dies, the last complete checkpoint is there and whole.
//
// Names that begin with a dot are work in progress: `.tmp-step-N-<pid>` is being written,
// `.old-step-N` has been renamed away to make room for a new step-N (and stands for it until that
// is in place), `.trash-step-N-<pid>` is being removed. Writers hold a lock on `.lock`, so what one
// of them finds was left behind by another that died.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/storage/safetensors.h"

namespace gt {

// A verified checkpoint. The tensors are mapped, not read; they stay readable when the checkpoint
// is removed meanwhile.
class CheckpointReader {
 public:
  int64_t step() const { return step_; }
  const nlohmann::json& state() const { return state_; }
  const std::vector<TensorEntry>& tensors() const { return table_.tensors(); }
  const TensorEntry* Find(std::string_view name) const { return table_.Find(name, path_); }
  // The step's folder, for messages.
  const std::string& path() const { return path_; }

 private:
  friend class CheckpointStore;
  CheckpointReader() = default;

  int64_t step_ = 0;
  std::string path_;
  nlohmann::json state_;
  std::vector<SafetensorsFile> shards_;
  TensorTable table_;
};

class CheckpointStore {
 public:
  static constexpr int64_t kDefaultShardBytes = int64_t{4} << 30;

  // Touches nothing yet; a folder that does not exist is an empty store.
  explicit CheckpointStore(std::filesystem::path folder, int64_t shard_bytes = kDefaultShardBytes);

  // Before training: creates the folder, removes what dead writers left behind, checks that files
  // can be written and that `bytes_needed` fit on the disk. CannotWrite with the numbers otherwise.
  void Prepare(int64_t bytes_needed) const;

  // Ascending. Steps whose folder has no manifest (a copy under way) are not listed.
  std::vector<int64_t> CompleteSteps() const;

  // Writes the checkpoint, and only when it is complete on the disk removes older ones: of the
  // steps up to this one the `keep_latest` largest stay (0: all of them). Steps beyond it, left by
  // a run that went further, are not touched. A step that exists is replaced. Any error leaves the
  // checkpoints that were there as they were.
  //
  // `state` must survive being written as JSON: text in UTF-8, finite numbers.
  void Save(int64_t step, std::span<const TensorSource> tensors, const nlohmann::json& state,
            int64_t keep_latest) const;

  // Reads every byte and compares it with its checksum. CheckpointDamaged if one is wrong, naming
  // the file, the tensors and the other steps that are there; CheckpointMismatch if another version
  // of the program wrote it.
  CheckpointReader Open(int64_t step) const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  int64_t shard_bytes_;
};

}  // namespace gt
