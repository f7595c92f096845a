// The writing half of safetensors.h.
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gt/base/error.h"
#include "gt/storage/file_writer.h"
#include "gt/storage/safetensors.h"
#include "gt/storage/safetensors_layout.h"
#include "gt/storage/weight_files.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

// Complete files under temporary names, waiting to be renamed. Those that never are get removed.
class PendingFiles {
 public:
  PendingFiles() = default;
  PendingFiles(const PendingFiles&) = delete;
  PendingFiles& operator=(const PendingFiles&) = delete;
  ~PendingFiles() {
    for (const auto& [temporary, target] : files_) unlink(temporary.c_str());
  }

  void AddTensors(const fs::path& target, std::span<const TensorSource* const> tensors,
                  const SafetensorsMetadata& metadata) {
    const SafetensorsLayout layout = LayOut(tensors, metadata, target.string());
    FileWriter writer(TemporaryOf(target));
    WriteLayout(layout, target.string(), writer);
    Add(writer, target);
  }

  void AddText(const fs::path& target, std::string_view text) {
    FileWriter writer(TemporaryOf(target));
    writer.Write(text);
    Add(writer, target);
  }

  void RenameAll() {
    std::reverse(files_.begin(), files_.end());
    while (!files_.empty()) {
      Rename(files_.back().first, files_.back().second);
      files_.pop_back();
    }
  }

 private:
  static fs::path TemporaryOf(const fs::path& target) {
    return target.parent_path() / fmt::format(".{}.tmp-{}", target.filename().string(), getpid());
  }

  void Add(FileWriter& writer, const fs::path& target) {
    writer.Finish();
    files_.emplace_back(TemporaryOf(target), target);
  }

  std::vector<std::pair<fs::path, fs::path>> files_;
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
  pending.RenameAll();
  SyncFolder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void WriteSafetensorsFolder(const fs::path& folder, std::span<const TensorSource> tensors,
                            int64_t max_shard_bytes, const SafetensorsMetadata& metadata) {
  CreateFolders(folder);
  const auto shards = PlanShards(tensors, max_shard_bytes);
  PendingFiles pending;
  if (shards.size() == 1) {
    pending.AddTensors(folder / kSingleFile, shards.front(), metadata);
    // Readers prefer the single file, so from here on it counts, whatever else is there.
    pending.RenameAll();
    RemoveWeights(folder, {std::string(kSingleFile)});
    return;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    pending.AddTensors(folder / ShardName("model", i, shards.size()), shards[i], metadata);
  }
  pending.AddText(folder / kIndexFile, IndexText(shards));
  RemoveWeights(folder, {});
  pending.RenameAll();
  SyncFolder(folder);
}

}  // namespace gt
