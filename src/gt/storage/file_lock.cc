#include "gt/storage/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "gt/base/logging.h"
#include "gt/storage/file_writer.h"

namespace gt {

FileLock::FileLock(const std::filesystem::path& path, IfTaken if_taken) {
  constexpr mode_t kMode = 0666;  // what the umask allows
  // Open for writing, since network file systems give an exclusive lock to nobody else.
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode);
  if (fd_ < 0) FailWriting(path, "cannot be created");
  int result = flock(fd_, LOCK_EX | LOCK_NB);
  const bool taken = result != 0 && errno == EWOULDBLOCK;
  if (taken && if_taken == IfTaken::kWait) {
    log::Info("{}: another process is writing there; waiting for it", path.parent_path().string());
    do {
      result = flock(fd_, LOCK_EX);
    } while (result != 0 && errno == EINTR);
  }
  if (result == 0) {
    state_ = State::kHeld;
  } else if (taken && if_taken == IfTaken::kLeave) {
    state_ = State::kTaken;
  }
}

FileLock::~FileLock() {
  // Closing alone would not do: a process that was forked meanwhile has the file open too.
  if (held()) flock(fd_, LOCK_UN);
  close(fd_);
}

}  // namespace gt
