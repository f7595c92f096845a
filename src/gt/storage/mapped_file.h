// A file seen as memory. Opening a file of 100 GB costs nothing; its pages are read when they are
// touched, and the kernel may evict them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "gt/base/error.h"

namespace gt {

// Read-only. The mapping outlives a rename or removal of the file; a file that another program cuts
// short while it is mapped cannot be defended against (the kernel sends SIGBUS), which is why
// everything here replaces files by renaming.
class MappedFile {
 public:
  MappedFile() = default;
  // Fails with `on_failure`, the path and the reason; folders, pipes and devices are refused.
  MappedFile(const std::filesystem::path& path, ErrorCode on_failure);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  // Page aligned; empty for an empty file. The address stays the same when the object is moved.
  std::span<const std::byte> bytes() const { return bytes_; }

  // Hints; `range` is inside bytes(), anything else is ignored. WillNeed starts reading the range
  // in the background, DontNeed gives its memory back (touching it later rereads it).
  void WillNeed(std::span<const std::byte> range) const;
  void DontNeed(std::span<const std::byte> range) const;

 private:
  void Advise(std::span<const std::byte> range, int advice) const;

  std::span<const std::byte> bytes_;
};

}  // namespace gt
