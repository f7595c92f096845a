// The folder that a run writes to: in use by this run alone, known to be writable before any work is
// done, and without results of other runs that disappear unannounced.
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

// Of the first rank alone. The folder is the run's while this lives.
class RunFolder {
 public:
  // FolderInUse if another run has it, CannotWrite if something that the run will write cannot be
  // written, ConflictingOptions if it would write over what it reads.
  explicit RunFolder(const Config& config);

  std::string Path(const std::string& name) const { return (path_ / name).string(); }

  // For the user to read when the run begins anew: what it replaces and what it leaves alone, a line
  // each.
  std::vector<std::string> WhatIsThere() const;

 private:
  std::string ReplacedLine() const;
  std::string CheckpointsLine() const;

  Config config_;
  std::filesystem::path path_;
  FolderClaim claim_;
  std::optional<FolderClaim> checkpoints_claim_;  // of a folder elsewhere
};

// The checkpoint folder itself, or one beside it if it has checkpoints of another run: a later run
// would continue from a mixture.
std::string FolderWithoutCheckpoints(const std::string& folder);

}  // namespace gt
