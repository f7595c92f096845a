// SafetensorsFolder of safetensors.h.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "gt/base/bounded_list.h"
#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/text.h"
#include "gt/storage/safetensors.h"
#include "gt/storage/weight_files.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

// Name of a tensor -> name of its shard; sorted, so that messages are.
using WeightMap = std::map<std::string, std::string>;

std::string Listed(const std::vector<std::string>& lines) {
  return "\n  " + JoinFirst(lines, "\n  ");
}

// What to tell somebody whose folder has no weights that gt reads.
[[noreturn]] void FailWithoutWeights(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    Fail(ErrorCode::kBadSafetensors, "{}: there is no such folder", folder.string());
  }
  std::string hint;
  if (!WeightFilesIn(folder).empty()) {
    hint = "; there are shards, but the index that says what is in them is missing";
  } else if (fs::exists(folder / "pytorch_model.bin", error) ||
             fs::exists(folder / "pytorch_model.bin.index.json", error)) {
    hint =
        "; convert pytorch_model.bin to safetensors, for example with transformers' "
        "save_pretrained";
  }
  Fail(ErrorCode::kBadSafetensors, "{}: the folder has neither {} nor {}{}", folder.string(),
       kSingleFile, kIndexFile, hint);
}

// The index comes from the same untrusted place as the shards: it may not lead out of the folder.
bool StaysInside(const fs::path& name) {
  return !name.empty() && name.is_relative() &&
         std::find(name.begin(), name.end(), fs::path("..")) == name.end();
}

WeightMap ReadIndex(const fs::path& path) {
  const MappedFile file(path, ErrorCode::kBadSafetensors);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  nlohmann::json index;
  try {
    index = ParseJson(text);
  } catch (const BadJson& problem) {
    Fail(ErrorCode::kBadSafetensors, "{}: is not a JSON object with a weight_map: {}",
         path.string(), problem.what());
  }
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    Fail(ErrorCode::kBadSafetensors, "{}: is not a JSON object with a weight_map", path.string());
  }
  WeightMap map;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string() || !StaysInside(shard.get<std::string>())) {
      Fail(ErrorCode::kBadSafetensors,
           "{}: the shard of tensor {} is {}, not the name of a file in the folder", path.string(),
           Quoted(tensor), ShortJson(shard));
    }
    map.emplace(tensor, shard.get<std::string>());
  }
  if (map.empty()) Fail(ErrorCode::kBadSafetensors, "{}: the weight_map is empty", path.string());
  return map;
}

std::vector<std::string> ShardsOf(const WeightMap& map) {
  std::vector<std::string> shards;
  for (const auto& [tensor, shard] : map) shards.push_back(shard);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  return shards;
}

void RequireAll(const fs::path& folder, const std::vector<std::string>& shards) {
  std::vector<std::string> missing;
  std::error_code error;
  for (const std::string& shard : shards) {
    if (!fs::exists(folder / shard, error)) missing.push_back(shard);
  }
  if (missing.empty()) return;
  Fail(ErrorCode::kBadSafetensors, "{}: {} of the {} files that {} names are missing:{}",
       folder.string(), missing.size(), shards.size(), kIndexFile, Listed(missing));
}

// Compares the index with what is in the shards; `files` belong to `shards`.
void CheckIndex(const fs::path& folder, const WeightMap& map,
                const std::vector<std::string>& shards, const std::vector<SafetensorsFile>& files) {
  std::map<std::string_view, std::string_view> found;  // tensor -> shard
  std::vector<std::string> problems;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const TensorEntry& tensor : files[i].tensors()) {
      const auto [first, is_new] = found.emplace(tensor.name, shards[i]);
      if (!is_new) {
        problems.push_back(
            fmt::format("{}: is in both {} and {}", Quoted(tensor.name), first->second, shards[i]));
      }
    }
  }
  for (const auto& [tensor, shard] : map) {
    const auto it = found.find(tensor);
    if (it == found.end()) {
      problems.push_back(fmt::format("{}: should be in {}, but is in none", Quoted(tensor), shard));
    } else if (it->second != shard) {
      problems.push_back(
          fmt::format("{}: should be in {}, but is in {}", Quoted(tensor), shard, it->second));
    }
  }
  if (problems.empty()) return;
  Fail(ErrorCode::kBadSafetensors, "{}: {} and the shards disagree about {} tensors:{}",
       folder.string(), kIndexFile, problems.size(), Listed(problems));
}

const SafetensorsFile* ShardHolding(std::span<const std::byte> bytes,
                                    const std::vector<SafetensorsFile>& shards) {
  for (const SafetensorsFile& shard : shards) {
    const auto& tensors = shard.tensors();
    if (tensors.empty()) continue;
    const std::byte* end = tensors.back().bytes.data() + tensors.back().bytes.size();
    if (bytes.data() >= tensors.front().bytes.data() && bytes.data() < end) {
      return &shard;
    }
  }
  return nullptr;
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const fs::path& folder) : path_(folder.string()) {
  std::error_code error;
  if (fs::exists(folder / kSingleFile, error)) {
    shards_.emplace_back(folder / kSingleFile);
  } else if (fs::exists(folder / kIndexFile, error)) {
    const WeightMap map = ReadIndex(folder / kIndexFile);
    const std::vector<std::string> shards = ShardsOf(map);
    RequireAll(folder, shards);
    for (const std::string& shard : shards) shards_.emplace_back(folder / shard);
    CheckIndex(folder, map, shards, shards_);
  } else {
    FailWithoutWeights(folder);
  }
  std::vector<TensorEntry> tensors;
  for (const SafetensorsFile& shard : shards_) {
    tensors.insert(tensors.end(), shard.tensors().begin(), shard.tensors().end());
  }
  table_ = TensorTable(std::move(tensors));
}

void SafetensorsFolder::WillNeed(std::span<const std::byte> bytes) const {
  if (const SafetensorsFile* shard = ShardHolding(bytes, shards_)) shard->WillNeed(bytes);
}

void SafetensorsFolder::DontNeed(std::span<const std::byte> bytes) const {
  if (const SafetensorsFile* shard = ShardHolding(bytes, shards_)) shard->DontNeed(bytes);
}

}  // namespace gt
