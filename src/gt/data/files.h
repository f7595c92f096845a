// Finds the files of a data set and tells by their names what they hold.
//
// A data set is a list of files, folders and patterns (data/path_pattern.h). Items are read in the
// order of the list, and the files of a folder or a pattern in the order of their names. A file that
// several items include is read once. All files of a data set are of one kind.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gt/base/byte_stream.h"
#include "gt/base/text.h"

namespace gt {

enum class DataKind { kText, kJsonl, kNpy, kBin };

template <>
inline constexpr std::array<std::string_view, 4> kEnumNames<DataKind> = {
    "text", "JSON lines", ".npy tokens", ".bin tokens"};

struct DataFile {
  std::filesystem::path path;
  std::string name;  // below the folder or the fixed part of the pattern, or the file's own name
  Compression compression = Compression::kNone;
  int64_t size = 0;  // bytes on disk
};

struct DataFiles {
  DataKind kind = DataKind::kText;
  std::vector<DataFile> files;  // at least one
  std::string name;             // last component of what was given: "sample.txt and 2 more"

  bool IsTokens() const { return kind == DataKind::kNpy || kind == DataKind::kBin; }
  bool IsCompressed() const;
  int64_t TotalSize() const;
  // Of names and sizes: tells whether the data of a checkpoint is the data of this run.
  uint64_t Fingerprint() const;
};

// An item that exists as a path is taken literally; otherwise it is a pattern or a comma-separated
// list. A folder is walked recursively; what starts with '.' is skipped, and so is NAME.json beside
// NAME.bin, which describes it. A file given by itself may have any name: it is text unless its name
// says otherwise. An item that matches no file is DataUnreadable, with similar names.
DataFiles FindDataFiles(const std::vector<std::string>& given);

// The file that describes `bin` (NAME.bin.json or NAME.json), or an empty path.
std::filesystem::path SidecarOf(const std::filesystem::path& bin);

}  // namespace gt
