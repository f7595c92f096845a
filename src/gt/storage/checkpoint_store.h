// Training checkpoints below one folder, one sub-folder per step:
//
//   checkpoint/step-00000010/tensors-00001-of-00002.safetensors   readable by any tool
//                            tensors-00002-of-00002.safetensors
//                            state.json                           everything that is not a tensor
//                            manifest.json                        sizes and checksums of the others
//             best.json                                             names the best step, if kept
//
// Where several ranks save together, each writes files of its own, with the boxes of the tensors
// that it holds: tensors-part00003-of-00008-00001-of-00001.safetensors. The manifest then also says
// what the whole tensors are, and a reader gets any box of them, whatever boxes were written.
//
// A step's folder appears by one rename when everything in it is on the disk. Whenever the process
// or the machine dies, the last complete checkpoint exists and is whole.
//
// Names that begin with a dot are work in progress: `.tmp-step-N-<pid>` is being written,
// `.old-step-N` has been renamed away to make room for a new step-N (and stands for it until that
// is in place), `.trash-step-N-<pid>` is being removed. Writers hold a lock on `.lock`, so what one
// of them finds was left behind by another that died.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/storage/best_checkpoint.h"
#include "gt/storage/checkpoint_verifier.h"
#include "gt/storage/safetensors.h"
#include "gt/storage/tensor_box.h"
#include "gt/storage/tensor_pieces.h"

namespace gt {

// What one rank holds of a tensor: `source` has the name of the whole tensor and the sizes of the
// box.
struct TensorPart {
  TensorSource source;
  TensorBox box;
};

TensorPart WholePart(TensorSource source);

// A verified checkpoint. The tensors are mapped, not read; they stay readable when the checkpoint
// is removed meanwhile.
class CheckpointReader {
 public:
  int64_t step() const { return step_; }
  const nlohmann::json& state() const { return contents_.state; }
  // The step's folder, for messages.
  const std::string& path() const { return path_; }

  // Dtype and sizes of a tensor, however it is stored; null when there is none.
  const TensorInfo* Info(std::string_view name) const { return contents_.pieces.Info(name); }

  // Any box of a tensor, however it is stored, as row-major bytes without gaps. CheckpointMismatch
  // if there is no such tensor or `box.whole` are not its sizes. May be called from several threads
  // at the same time.
  void Read(std::string_view name, const TensorBox& box, std::span<std::byte> destination) const {
    contents_.pieces.Read(name, box, destination, path_);
  }

  // The tensors that are stored in one piece, which can be had without a copy. Find is null for all
  // others.
  const std::vector<TensorEntry>& tensors() const { return whole_.tensors(); }
  const TensorEntry* Find(std::string_view name) const { return whole_.Find(name, path_); }

 private:
  friend class CheckpointStore;
  CheckpointReader() = default;

  int64_t step_ = 0;
  std::string path_;
  CheckpointContents contents_;
  TensorTable whole_;
};

// Most checkpoints that exist at one time beyond the `existing` ones while `saves` more are made:
// an older one is removed only once a newer one is complete. `keep_latest` is more than 0.
int64_t MostAdded(int64_t existing, int64_t saves, int64_t keep_latest);

// Copies share the save that is under way; there is one at a time.
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

  // The folder of a complete step.
  std::filesystem::path FolderOfStep(int64_t step) const;

  // Writes the checkpoint, and only when it is complete on the disk removes older ones, as
  // `retention` says. Steps beyond it, left by a run that went further, are not touched. A step that
  // exists is replaced. Any error leaves the checkpoints that were there as they were.
  //
  // `state` must survive being written as JSON: text in UTF-8, finite numbers.
  void Save(int64_t step, std::span<const TensorSource> tensors, const nlohmann::json& state,
            const Retention& retention) const;

  // The same by many ranks, whose stores are of the same folder:
  //
  //   one rank      temporary = Begin(step), sends it to the others
  //   every rank    text = WritePart(temporary, rank, ranks, its parts), sends it to that one
  //   that rank     Commit(step, temporary, all texts, state, retention)
  //                 or Abandon(temporary), when some rank failed
  //
  // Nobody sees the bytes of another rank, and there is no checkpoint of the step before Commit.
  // The rank that begins holds the lock of the folder until Commit or Abandon, which are called on
  // the same store or a copy of it.

  // Makes the temporary folder and returns its name. Waits while another process is writing.
  std::string Begin(int64_t step) const;

  // Returns, when its files are on the disk, a text that describes them. `part` counts from 0; a
  // rank with nothing to write calls this too. Of a tensor, the ranks together write everything;
  // ranges that several of them write are stored as often, and should have the same bytes. Empty
  // boxes are skipped.
  std::string WritePart(const std::string& temporary, int64_t part, int64_t parts,
                        std::span<const TensorPart> tensors) const;

  // Checks that the parts exist and make up whole tensors: CannotWrite otherwise, naming file,
  // tensor and range. Whatever fails, the temporary folder is removed and all else is as it was.
  void Commit(int64_t step, const std::string& temporary, std::span<const std::string> parts,
              const nlohmann::json& state, const Retention& retention) const;

  // Removes what was written so far. Harmless when there is nothing any more.
  void Abandon(const std::string& temporary) const;

  // Compares the files with the manifest: sizes and headers of all, and every byte of those in
  // `share` with its checksum. CheckpointDamaged if something is wrong, naming the file, the
  // tensors and the other steps that exist; CheckpointMismatch if another version of the
  // program wrote it. Ranks that share the work must tell each other the outcome: each finds only
  // the damage in its own share.
  CheckpointReader Open(int64_t step, VerifyShare share = {}) const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  class UnderWay;

  std::filesystem::path folder_;
  int64_t shard_bytes_;
  std::shared_ptr<UnderWay> under_way_;
};

}  // namespace gt
