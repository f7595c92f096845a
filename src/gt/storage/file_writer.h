// Writing files so that they are whole or not there. All errors are CannotWrite, with the path and
// the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gt {

// A new file, written from front to back. Large pieces go to the kernel as they are, small ones are
// collected.
class FileWriter {
 public:
  // Creates the file, or empties it.
  explicit FileWriter(std::filesystem::path path);
  // Removes the file unless it was finished.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Claims the space on the disk, so that a disk too small is found before the writing and not
  // after half of it. Does nothing on file systems that cannot do that.
  void Reserve(int64_t bytes);
  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  // Returns when everything is on the disk.
  void Finish();

 private:
  void Flush();
  void WriteThrough(std::span<const std::byte> bytes);
  void StartWriteBack();

  std::filesystem::path path_;
  int fd_ = -1;
  std::vector<std::byte> buffer_;
  int64_t written_ = 0;     // bytes the kernel has
  int64_t write_back_ = 0;  // of those, the ones it was told to start bringing to the disk
};

// Brings names made, renamed or removed in the folder to the disk.
void SyncFolder(const std::filesystem::path& folder);

// Atomic; replaces a file at `to`.
void Rename(const std::filesystem::path& from, const std::filesystem::path& to);

void CreateFolders(const std::filesystem::path& folder);

// Fails if the file system that holds the folder has less room than that.
void RequireSpace(const std::filesystem::path& folder, int64_t bytes);

// Throws CannotWrite for the system call that has just failed: "/a/b: cannot be written: No space
// left on device; free some space ...".
[[noreturn]] void FailWriting(const std::filesystem::path& path, std::string_view what);
[[noreturn]] void FailWriting(const std::filesystem::path& path, std::string_view what, int error);

// "1.5 GiB (1610612736 bytes)"
std::string BytesText(int64_t bytes);

}  // namespace gt
