// A lock between processes. The kernel releases it when the holder ends, however it ends.
#pragma once

#include <filesystem>

namespace gt {

class FileLock {
 public:
  enum class IfTaken { kWait, kLeave };
  enum class State {
    kHeld,
    kTaken,        // by another process, or elsewhere in this one
    kUnsupported,  // the file system has no locks: some clusters switch them off
  };

  // Creates the file if need be. CannotWrite if it cannot be opened. If the lock is taken, waits until
  // it is free or leaves it to its holder.
  explicit FileLock(const std::filesystem::path& path, IfTaken if_taken = IfTaken::kWait);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  State state() const { return state_; }
  bool held() const { return state_ == State::kHeld; }
  // The file, open for reading and writing.
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  State state_ = State::kUnsupported;
};

}  // namespace gt
