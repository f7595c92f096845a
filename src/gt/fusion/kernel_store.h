// Compiled kernels, and what is known about them, in a folder of the user's that all runs share. An entry
// is a file that appears by one rename and carries a checksum: processes may write the same one at the
// same time, and a damaged one counts as missing. The folder is a convenience: if it cannot be read or
// written, a warning says so once, and everything is made again.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace gt::fusion {

class KernelStore {
 public:
  static constexpr int64_t kMostBytes = int64_t{512} << 20;

  // An empty path: nothing is stored. When more than `most_bytes` are there, the oldest entries go.
  explicit KernelStore(std::filesystem::path folder, int64_t most_bytes = kMostBytes);

  // `name` is a file's name without folder.
  std::optional<std::string> Find(const std::string& name) const;
  void Put(const std::string& name, std::string_view content);
  void Remove(const std::string& name);

  const std::filesystem::path& folder() const { return folder_; }

 private:
  void WarnOnce(const std::string& what) const;
  void DropOldest();

  const std::filesystem::path folder_;
  const int64_t most_bytes_;
  mutable std::atomic<bool> warned_ = false;
};

// $XDG_CACHE_HOME or ~/.cache, then graphtrainer/kernels; empty where there is no home.
std::filesystem::path DefaultKernelFolder();

}  // namespace gt::fusion
