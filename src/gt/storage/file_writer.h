// Writing files so that nothing that was there is lost: a file is written beside the one that it
// replaces and takes its place when all of it is on the disk. All errors are CannotWrite, with the
// path and the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gt {

// A file, written from front to back. Large pieces go to the kernel as they are, small ones are
// collected.
//
// Until Finish, what `path` names is as it was: a file that was there with its contents, or nothing.
// Links stay links, to the file that is replaced, and a file that was there keeps its permissions.
// Devices, pipes, and what this process has as its standard output or error cannot be replaced: they
// are written in place, and never removed.
class FileWriter {
 public:
  explicit FileWriter(std::filesystem::path path);
  // Without Finish, leaves everything as it was.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Claims the space on the disk, so that a disk too small is found before the writing and not
  // after half of it. Does nothing on file systems that cannot do that.
  void Reserve(int64_t bytes);
  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  // Returns when everything is on the disk and in its place.
  void Finish() {
    Complete();
    Publish();
  }

  // The two halves of Finish, for files that must appear together: brings everything to the disk, and
  // puts it in its place.
  void Complete();
  void Publish();

 private:
  void Open();
  void Flush();
  void WriteThrough(std::span<const std::byte> bytes);
  void StartWriteBack();

  std::filesystem::path path_;       // as given, for messages
  std::filesystem::path target_;     // what it names, with all links followed
  std::filesystem::path temporary_;  // beside the target; empty: written in place, or published
  int fd_ = -1;
  std::vector<std::byte> buffer_;
  int64_t written_ = 0;     // bytes the kernel has
  int64_t write_back_ = 0;  // of those, the ones it was told to start bringing to the disk
};

// Whether a FileWriter that was killed may have left a file of this name beside its target.
bool IsTemporaryOf(std::string_view name, std::string_view target);

// Writes a whole file.
void WriteFile(const std::filesystem::path& path, std::string_view text);

// Fails if a FileWriter could not write the file, whose folders need not exist yet. Leaves nothing
// behind.
void RequireWritable(const std::filesystem::path& path);

// Brings names made, renamed or removed in the folder to the disk.
void SyncFolder(const std::filesystem::path& folder);

// Atomic; replaces a file at `to`.
void Rename(const std::filesystem::path& from, const std::filesystem::path& to);

void CreateFolders(const std::filesystem::path& folder);

// Fails if the file system that holds the folder has less room than that.
void RequireSpace(const std::filesystem::path& folder, int64_t bytes);

// Something that will be written below a folder, which exists.
struct SpaceNeed {
  std::filesystem::path folder;
  int64_t bytes = 0;
  std::string what;  // "3 checkpoints of 1.5 GiB each", for the message
};
// Fails if a file system has less room than everything that will be written to it.
void RequireSpace(std::span<const SpaceNeed> needs);

// What the file system that holds the folder has left for this user.
int64_t FreeSpace(const std::filesystem::path& folder);

// Throws CannotWrite for the system call that has just failed: "/a/b: cannot be written: No space
// left on device; free some space ...".
[[noreturn]] void FailWriting(const std::filesystem::path& path, std::string_view what);
[[noreturn]] void FailWriting(const std::filesystem::path& path, std::string_view what, int error);

}  // namespace gt
