#include "gt/storage/folder_claim.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <string>
#include <string_view>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/storage/file_writer.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

fs::path LockFileIn(const fs::path& folder) {
  CreateFolders(folder);
  return folder / ".run.lock";
}

// "process 4242 on node7, since 2026-11-16 14:51:24"
std::string ThisProcess() {
  std::array<char, 256> host = {};
  const bool named = gethostname(host.data(), host.size() - 1) == 0 && host[0] != '\0';
  return fmt::format("process {} on {}, since {}", getpid(),
                     named ? host.data() : "an unknown machine", LocalTimeText(std::time(nullptr)));
}

// What the holder has left in the file; a moment after it has taken the lock, that may be nothing.
std::string HolderOf(int fd) {
  std::array<char, 512> text = {};
  const ssize_t size = pread(fd, text.data(), text.size(), 0);
  const std::string_view holder =
      Trim({text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))});
  return holder.empty() ? "another process" : std::string(holder);
}

}  // namespace

FolderClaim::FolderClaim(const fs::path& folder)
    : lock_(LockFileIn(folder), FileLock::IfTaken::kLeave) {
  if (lock_.state() == FileLock::State::kTaken) {
    Fail(ErrorCode::kFolderInUse,
         "{} is in use by another run: {}; wait for it, end it, or choose another --dump_folder",
         folder.string(), HolderOf(lock_.fd()));
  }
  if (!lock_.held()) {
    log::Warn(
        "{}: the file system has no locks, so a second run in this folder would not be noticed",
        folder.string());
  }
  // The text is for messages alone: what counts is the lock.
  const std::string text = ThisProcess() + "\n";
  if (ftruncate(lock_.fd(), 0) != 0 || pwrite(lock_.fd(), text.data(), text.size(), 0) < 0) {
    FailWriting(LockFileIn(folder), "cannot be written");
  }
}

}  // namespace gt
