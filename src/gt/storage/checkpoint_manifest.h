// manifest.json of a checkpoint: what its files are, how large, and with which checksums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace gt {

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kStateFile = "state.json";

// For a file of tensors the checksum is that of the header alone. Together with those of the
// tensors it covers every byte, and none is read twice.
struct FileRecord {
  int64_t size = 0;
  uint64_t checksum = 0;
  std::map<std::string, uint64_t> tensors;
};

struct Manifest {
  int64_t step = 0;
  std::map<std::string, FileRecord> files;
};

// Carries its own checksum.
std::string ManifestText(const Manifest& manifest);

// CheckpointDamaged if it is missing or not exactly what ManifestText wrote; CheckpointMismatch if
// another version of the program wrote it. Messages name the file.
Manifest ReadManifest(const std::filesystem::path& folder);

}  // namespace gt
