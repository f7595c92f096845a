// The folder that a run writes to: in use by this run alone, and known to be writable before any work is
// done. Results of an earlier run move to previous/ once this run has finished a step, and not before.
//
// run.json lists what belongs to gt in the folder. Everything else is the user's: it is never moved,
// overwritten or removed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gt/job/config.h"
#include "gt/storage/folder_claim.h"

namespace gt {

// Its file of the plan of a placed job.
inline constexpr const char* kPlanFile = "plan.json";

// The folder for a run of the job: a new one, or where placeholders name a folder for each run and
// checkpoints are on, the last one if it holds checkpoints of this very job. `notes`: lines for the user.
std::string ChooseRunFolder(const Config& config, std::vector<std::string>* notes);

// Of the first rank alone. The folder is the run's while this lives.
class RunFolder {
 public:
  // `config`: with its dump_folder filled in. `latest`: a link that is to name the folder; empty: none.
  //
  // FolderInUse if another run has the folder, CannotWrite if something that the run will write cannot be
  // written, ConflictingOptions if it would write over what it reads, FolderHasResults if a run that begins
  // anew finds results of another configuration, or files of its own names that gt has not written, and
  // `overwrite` is off.
  explicit RunFolder(const Config& config, std::filesystem::path latest = {});
  // Removes a folder that it has made and that is still empty.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  std::string Path(const std::string& name) const { return (path_ / name).string(); }

  // For the user to read when the run begins anew: what will move to previous/ and what is left alone, a line
  // each.
  std::vector<std::string> WhatIsThere() const;

  // Once, before the first result is written, which is after the first step. `continues`: the run goes on with
  // the results that are there.
  void Begin(bool continues);

  // About to write this result: run.json lists it. Before Begin (dumps of passes), what is there moves to
  // previous/.
  void WillWrite(const std::string& name);

 private:
  bool BeginsAnew() const;
  void RefuseOthersResults() const;
  void RefuseToWriteInputs() const;
  void RemoveTornFiles() const;
  std::vector<std::string> Results() const;
  void MoveToPrevious(const std::vector<std::string>& names);
  void PointLatestHere() const;
  std::string MovedLine() const;
  std::string CheckpointsLine() const;

  Config config_;
  std::filesystem::path path_, latest_;
  bool made_here_;  // the folder did not exist
  bool begun_ = false;
  std::vector<std::string> written_;  // by gt, those that are there included
  std::vector<std::string> early_;    // by this run, before Begin
  std::optional<FolderClaim> claim_;
  std::optional<FolderClaim> checkpoints_claim_;  // of a folder elsewhere
};

// The checkpoint folder itself, or one beside it if it has checkpoints of another run: a later run
// would continue from a mixture.
std::string FolderWithoutCheckpoints(const std::string& folder);

}  // namespace gt
