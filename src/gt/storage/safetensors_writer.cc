// The writing half of safetensors.h.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "gt/base/error.h"
#include "gt/storage/file_writer.h"
#include "gt/storage/safetensors.h"
#include "gt/storage/safetensors_layout.h"
#include "gt/storage/weight_files.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

// Complete files that are not in their places yet. Those that never are get removed.
class PendingFiles {
 public:
  void AddTensors(const fs::path& target, std::span<const TensorSource* const> tensors,
                  const SafetensorsMetadata& metadata) {
    const SafetensorsLayout layout = LayOut(tensors, metadata, target.string());
    WriteLayout(layout, target.string(), Add(target));
    files_.back()->Complete();
  }

  void AddText(const fs::path& target, std::string_view text) {
    Add(target).Write(text);
    files_.back()->Complete();
  }

  void PublishAll() {
    for (const auto& file : files_) file->Publish();
    files_.clear();
  }

 private:
  FileWriter& Add(const fs::path& target) {
    return *files_.emplace_back(std::make_unique<FileWriter>(target));
  }

  std::vector<std::unique_ptr<FileWriter>> files_;
};

void RemoveFile(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) FailWriting(path, "cannot be removed", error.value());
}

// A crash after this leaves a folder without weights, which nothing takes for a model; a mixture of
// old and new shards would be taken for one.
void RemoveWeights(const fs::path& folder, const std::vector<std::string>& except) {
  for (const std::string& name : WeightFilesIn(folder)) {
    if (std::find(except.begin(), except.end(), name) == except.end()) RemoveFile(folder / name);
  }
  SyncFolder(folder);
}

std::string IndexText(std::span<const std::vector<const TensorSource*>> shards) {
  int64_t total_size = 0;
  nlohmann::json weight_map = nlohmann::json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const TensorSource* tensor : shards[i]) {
      total_size += tensor->bytes();
      weight_map[tensor->name] = ShardName("model", i, shards.size());
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total_size}}},
                                {"weight_map", std::move(weight_map)}};
  return index.dump(2) + "\n";
}

}  // namespace

TensorSource SourceOf(std::string name, DType dtype, std::vector<int64_t> sizes,
                      std::span<const std::byte> bytes) {
  return {.name = std::move(name),
          .dtype = dtype,
          .sizes = std::move(sizes),
          .write = [bytes](const ByteSink& sink) { sink(bytes); }};
}

void WriteSafetensors(const fs::path& path, std::span<const TensorSource> tensors,
                      const SafetensorsMetadata& metadata) {
  std::vector<const TensorSource*> sources;
  for (const TensorSource& tensor : tensors) sources.push_back(&tensor);
  PendingFiles pending;
  pending.AddTensors(path, sources, metadata);
  pending.PublishAll();
  SyncFolder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void WriteSafetensorsFolder(const fs::path& folder, std::span<const TensorSource> tensors,
                            int64_t max_shard_bytes, const SafetensorsMetadata& metadata) {
  CreateFolders(folder);
  const auto shards = PlanShards(tensors, max_shard_bytes);
  PendingFiles pending;
  if (shards.size() == 1) {
    pending.AddTensors(folder / kSingleFile, shards.front(), metadata);
    // Readers prefer the single file, so from here on it counts, whatever other files exist.
    pending.PublishAll();
    RemoveWeights(folder, {std::string(kSingleFile)});
    return;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    pending.AddTensors(folder / ShardName("model", i, shards.size()), shards[i], metadata);
  }
  pending.AddText(folder / kIndexFile, IndexText(shards));
  RemoveWeights(folder, {});
  pending.PublishAll();
  SyncFolder(folder);
}

}  // namespace gt
