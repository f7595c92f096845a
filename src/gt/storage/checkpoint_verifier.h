// Compares the folder of one checkpoint with its manifest, byte for byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gt/storage/safetensors.h"
#include "gt/storage/tensor_pieces.h"

namespace gt {

// The files whose bytes are read: of all in the order of their names, each `count`-th. When each of
// `count` ranks has another index, together they have read everything.
struct VerifyShare {
  int64_t index = 0;
  int64_t count = 1;

  // Sizes and headers, and no bytes of tensors.
  static VerifyShare None() { return {.index = 0, .count = 0}; }
  bool Has(int64_t file) const { return count > 0 && file % count == index; }
};

struct CheckpointContents {
  nlohmann::json state;
  std::vector<SafetensorsFile> shards;
  TensorPieces pieces;  // refers to the shards
};

// Opens what is in the folder and returns everything that is wrong with it. Only if that is nothing
// are the contents to be used. Throws only what is no damage: CheckpointMismatch.
std::vector<std::string> VerifyCheckpoint(const std::filesystem::path& folder, int64_t step,
                                          VerifyShare share, CheckpointContents& contents);

}  // namespace gt
