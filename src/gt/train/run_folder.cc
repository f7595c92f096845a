#include "gt/train/run_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/storage/checkpoint_store.h"
#include "gt/storage/file_writer.h"
#include "gt/train/checkpoint.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

bool IsThere(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool AreSame(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error);
}

// Weights are written to a folder that may be the one they are read from.
void RefuseToOverwriteModel(const Config& config) {
  const std::string& source = config.model.hf_path;
  const fs::path target = fs::path(config.dump_folder) / "hf";
  if (source.empty() || !config.checkpoint.last_save_in_hf || !AreSame(source, target)) return;
  Fail(
      ErrorCode::kConflictingOptions,
      "--model.hf_path {} is where this run would write its own weights at the end; choose another "
      "--dump_folder (now {}), or leave the weights out with --checkpoint.last_save_in_hf=false",
      source, config.dump_folder);
}

// The number of the last step in a metrics.jsonl, or 0.
int64_t LastStepIn(const fs::path& metrics) {
  constexpr std::streamoff kTail = 4096;  // more than a line
  std::ifstream file(metrics, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) return 0;
  file.seekg(std::max<std::streamoff>(0, size - kTail));
  const std::string tail{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  int64_t step = 0;
  for (const std::string& line : Split(tail, '\n')) {
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (entry.is_object() && entry.contains("step") && entry["step"].is_number_integer()) {
      step = entry["step"].get<int64_t>();
    }
  }
  return step;
}

std::string TimeOf(const fs::path& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? LocalTimeText(info.st_mtime) : "an unknown time";
}

}  // namespace

RunFolder::RunFolder(const Config& config)
    : config_(config), path_(config.dump_folder), claim_(path_) {
  const fs::path checkpoints = CheckpointFolder(config);
  if (config.checkpoint.enable) {
    CreateFolders(checkpoints);
    if (!AreSame(checkpoints, path_)) checkpoints_claim_.emplace(checkpoints);
  }
  RefuseToOverwriteModel(config);
  RequireWritable(path_ / "config.toml");
  RequireWritable(path_ / "metrics.jsonl");
  if (!config.profiling.steps.empty()) RequireWritable(path_ / "profile" / "costs.json");
  if (config.checkpoint.last_save_in_hf) {
    RequireWritable(path_ / "hf" / "config.json");
    RequireWritable(path_ / "hf" / "model.safetensors");
  }
}

std::string RunFolder::ReplacedLine() const {
  std::vector<std::string> replaced;
  for (const char* name : {"metrics.jsonl", "config.toml"}) {
    if (IsThere(path_ / name)) replaced.emplace_back(name);
  }
  if (config_.checkpoint.last_save_in_hf && IsThere(path_ / "hf")) replaced.emplace_back("hf");
  if (replaced.empty()) return "";
  const fs::path metrics = path_ / "metrics.jsonl";
  const int64_t steps = LastStepIn(metrics);
  const std::string run = steps == 0 ? "an earlier run"
                                     : fmt::format("a run of {}, {} step{},", TimeOf(metrics),
                                                   steps, steps == 1 ? "" : "s");
  return fmt::format("replacing the results of {} in {}: {}", run, path_.string(),
                     Join(replaced, ", "));
}

std::string RunFolder::CheckpointsLine() const {
  if (config_.checkpoint.enable) return "";
  const std::string folder = CheckpointFolder(config_);
  const std::vector<int64_t> steps = CheckpointStore(folder).CompleteSteps();
  if (steps.empty()) return "";
  return fmt::format(
      "{} has {} checkpoint{}, the latest of step {}: this run begins anew and leaves {} alone; "
      "--checkpoint.enable continues from the latest",
      folder, steps.size(), steps.size() == 1 ? "" : "s", steps.back(),
      steps.size() == 1 ? "it" : "them");
}

std::vector<std::string> RunFolder::WhatIsThere() const {
  std::vector<std::string> lines = {ReplacedLine(), CheckpointsLine()};
  std::erase(lines, "");
  return lines;
}

std::string FolderWithoutCheckpoints(const std::string& folder) {
  std::string name = folder;
  for (int i = 2; !CheckpointStore(name).CompleteSteps().empty(); ++i) {
    name = fmt::format("{}-{}", folder, i);
  }
  return name;
}

}  // namespace gt
