// Keeps a folder for one run: another one that wants it is told whose it is.
#pragma once

#include <filesystem>

#include "gt/storage/file_lock.h"

namespace gt {

class FolderClaim {
 public:
  // Creates the folder if need be. FolderInUse, naming process, machine and time, if it is claimed
  // already; the claim of a process that has died is none. On a file system without locks nothing can
  // be claimed: that is logged, and the run goes on.
  explicit FolderClaim(const std::filesystem::path& folder);

 private:
  FileLock lock_;
};

}  // namespace gt
