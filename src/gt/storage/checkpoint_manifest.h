// manifest.json of a checkpoint: what its files are, how large, and with which checksums; and,
// where several ranks wrote it, what the tensors are whose pieces the files hold.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "gt/storage/tensor_pieces.h"

namespace gt {

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kStateFile = "state.json";

// For a file of tensors the checksum is that of the header alone. Together with those of the
// tensors it covers every byte, and none is read twice.
struct FileRecord {
  int64_t size = 0;
  uint64_t checksum = 0;
  std::map<std::string, uint64_t> tensors;  // by their names in the file, see PieceName
};

using FileRecords = std::map<std::string, FileRecord>;

struct Manifest {
  int64_t step = 0;
  FileRecords files;
  // Every tensor, if some are stored in pieces; else nothing: then the files say it all, as in the
  // first version of the format.
  TensorIndex tensors;
};

// What one rank has written, for the one that writes the manifest.
struct PartRecord {
  int64_t part = 0;
  int64_t parts = 1;
  std::string temporary;  // the folder that its files are in
  FileRecords files;
  TensorIndex tensors;  // that it has pieces of, be they empty
};

// Both carry their own checksum.
std::string ManifestText(const Manifest& manifest);
std::string PartText(const PartRecord& part);

// CheckpointDamaged if it is missing or not exactly what ManifestText wrote; CheckpointMismatch if
// another version of the program wrote it. Messages name the file.
Manifest ReadManifest(const std::filesystem::path& folder);

// CheckpointDamaged if it is not exactly what PartText wrote.
PartRecord ParsePart(const std::string& text);

}  // namespace gt
