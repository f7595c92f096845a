// Reading a file that a user named, as a whole: configurations, descriptions of models, tokenizers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace gt {

// Why a file cannot be read, for a message that names the file: "it is a folder".
class UnreadableFile : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Far above any file of settings, and far below what would fill a machine's memory.
inline constexpr std::size_t kLargestSettingsFile = std::size_t{64} << 20;

// The content of a file, or of a pipe such as that of `--config <(...)`. Throws UnreadableFile for
// what is missing, a folder, larger than `limit` (a device such as /dev/zero never ends), or a pipe
// that nothing comes out of.
std::string ReadWholeFile(const std::filesystem::path& path,
                          std::size_t limit = kLargestSettingsFile);

}  // namespace gt
