// The names under which Hugging Face folders keep weights.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gt {

inline constexpr std::string_view kSingleFile = "model.safetensors";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

// "model-00001-of-00003.safetensors" for index 0 of 3.
std::string ShardName(std::string_view stem, size_t index, size_t count);

// The files of those names that are in the folder, sorted; none if there is no such folder.
std::vector<std::string> WeightFilesIn(const std::filesystem::path& folder);

}  // namespace gt
