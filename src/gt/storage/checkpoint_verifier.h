// Compares the folder of one checkpoint with its manifest, byte for byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gt/storage/safetensors.h"

namespace gt {

// Opens what is in the folder and returns everything that is wrong with it. Only if that is nothing
// are `state` and `shards` to be used. Throws only what is no damage: CheckpointMismatch.
std::vector<std::string> VerifyCheckpoint(const std::filesystem::path& folder, int64_t step,
                                          nlohmann::json& state,
                                          std::vector<SafetensorsFile>& shards);

}  // namespace gt
