// Tells whether two files have the same contents without reading all of a large one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace gt {

enum class DigestOf {
  kSamples,  // the size and blocks spread over the file; all of a small file
  kWhole,
};

struct FileDigest {
  int64_t size = -1;  // -1: the file cannot be read
  uint64_t hash = 0;
};

// In the order of the paths. Reads with several threads. With samples, files share a budget of
// kSampledBytes, of which each gets at least its first and its last block.
std::vector<FileDigest> DigestFiles(std::span<const std::filesystem::path> paths, DigestOf what);

inline constexpr int64_t kSampledBytes = int64_t{64} << 20;

}  // namespace gt
