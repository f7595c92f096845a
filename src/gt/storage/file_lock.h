// A lock between processes. The kernel releases it when the holder ends, however it ends.
#pragma once

#include <filesystem>

namespace gt {

class FileLock {
 public:
  // Creates the file if need be and waits until the lock is free. CannotWrite if the file cannot be
  // opened.
  explicit FileLock(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // False on file systems that have no locks (some clusters switch them off).
  bool held() const { return held_; }

 private:
  int fd_ = -1;
  bool held_ = false;
};

}  // namespace gt
