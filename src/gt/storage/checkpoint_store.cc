#include "gt/storage/checkpoint_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>

#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/storage/checkpoint_manifest.h"
#include "gt/storage/checkpoint_verifier.h"
#include "gt/storage/checksum.h"
#include "gt/storage/file_lock.h"
#include "gt/storage/file_writer.h"
#include "gt/storage/safetensors_layout.h"
#include "gt/storage/weight_files.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kOld = ".old-";
constexpr std::string_view kTrash = ".trash-";
constexpr std::string_view kLockFile = ".lock";

std::string StepName(int64_t step) { return fmt::format("{}{:08}", kStep, step); }

// The number at the end of "step-00000010".
std::optional<int64_t> StepOf(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::string_view digits = name.substr(kStep.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  // Only one spelling of each number, or "step-1" and "step-00000001" would be the same step.
  if (step < 0 || StepName(step) != name) return std::nullopt;
  return step;
}

std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsComplete(const fs::path& step_folder) { return Exists(step_folder / kManifestFile); }

// Where the checkpoint of a step is: in its own folder, or, when a writer died while replacing it,
// in the one that had been renamed away.
fs::path FolderOf(const fs::path& store, int64_t step) {
  fs::path folder = store / StepName(step);
  if (Exists(folder)) return folder;
  fs::path old = store / (std::string(kOld) + StepName(step));
  return IsComplete(old) ? old : folder;
}

// "; other steps there: 10, 20", to end a message.
std::string OtherSteps(const CheckpointStore& store, int64_t step) {
  std::vector<int64_t> steps = store.CompleteSteps();
  std::erase(steps, step);
  if (steps.empty()) return "; there is no other checkpoint in that folder";
  return fmt::format("; other steps that are there: {}", fmt::join(steps, ", "));
}

// Nothing about removal may make a save fail that is already complete: problems are logged.
void RemoveTree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log::Warn("{}: cannot be removed: {}", path.string(), error.message());
}

// Takes the names away first and the data after that, so that a crash in between leaves no folder
// that looks like a checkpoint and lacks a part.
void RemoveFolders(const fs::path& store, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::vector<fs::path> trash;
  for (const std::string& name : names) {
    const fs::path target =
        store / fmt::format("{}{}-{}", kTrash, name.substr(name.find(kStep)), getpid());
    RemoveTree(target);
    std::error_code error;
    fs::rename(store / name, target, error);
    if (error) {
      log::Warn("{}: cannot be removed: {}", (store / name).string(), error.message());
    } else {
      trash.push_back(target);
    }
  }
  try {
    SyncFolder(store);
  } catch (const Error& error) {
    log::Warn("{}", error.message());
    return;
  }
  for (const fs::path& path : trash) RemoveTree(path);
}

// "...-<pid>"
std::optional<pid_t> WriterOf(std::string_view name) {
  const std::string_view digits = name.substr(name.rfind('-') + 1);
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  if (error != std::errc() || end != digits.data() + digits.size() || pid <= 0) return std::nullopt;
  return pid;
}

bool IsRunning(pid_t pid) { return kill(pid, 0) == 0 || errno == EPERM; }

// Work in progress that nobody works on any more. Who holds the lock knows that there is no other
// writer; on file systems without locks the process number in the name must do.
bool IsLeftOver(std::string_view name, const FileLock& lock) {
  if (!name.starts_with(kTemporary) && !name.starts_with(kTrash)) return false;
  if (lock.held()) return true;
  const auto writer = WriterOf(name);
  return !writer.has_value() || *writer == getpid() || !IsRunning(*writer);
}

// A step that was renamed away: puts it back if its replacement never came.
void RecoverReplaced(const fs::path& store, const std::string& old_name) {
  const std::string name = old_name.substr(kOld.size());
  if (!Exists(store / name) && IsComplete(store / old_name)) {
    Rename(store / old_name, store / name);
    SyncFolder(store);
  } else {
    RemoveFolders(store, {old_name});
  }
}

void CleanUp(const fs::path& store, const FileLock& lock) {
  for (const std::string& name : NamesIn(store)) {
    if (name.starts_with(kOld) && StepOf(name.substr(kOld.size())).has_value()) {
      RecoverReplaced(store, name);
    } else if (IsLeftOver(name, lock)) {
      log::Debug("{}: removing what a writer left behind", (store / name).string());
      RemoveTree(store / name);
    }
  }
}

void RemoveOlder(const fs::path& store, const std::vector<int64_t>& steps, int64_t newest,
                 int64_t keep_latest) {
  if (keep_latest <= 0) return;
  std::vector<std::string> names;
  for (const int64_t step : steps) {
    if (step <= newest) names.push_back(StepName(step));
  }
  const auto kept = std::min(names.size(), static_cast<size_t>(keep_latest));
  names.resize(names.size() - kept);
  RemoveFolders(store, names);
}

std::string StateText(const nlohmann::json& state) {
  std::string text;
  try {
    text = state.dump(2) + "\n";
  } catch (const nlohmann::json::exception& error) {
    Fail(ErrorCode::kInternal, "the state of a checkpoint cannot be written as JSON: {}",
         error.what());
  }
  // Numbers that are not finite become null. A run that resumes from something else than it saved
  // is worse than one that stops here.
  GT_CHECK(nlohmann::json::parse(text) == state,
           "the state of a checkpoint changes when it is written as JSON");
  return text;
}

FileRecord WriteTextFile(const fs::path& path, std::string_view text) {
  FileWriter writer(path);
  writer.Write(text);
  writer.Finish();
  return {.size = static_cast<int64_t>(text.size()), .checksum = Xxh64Of(text), .tensors = {}};
}

FileRecord WriteShard(const fs::path& path, std::span<const TensorSource* const> tensors) {
  const SafetensorsLayout layout = LayOut(tensors, {{"format", "pt"}}, path.string());
  FileRecord record;
  record.size = layout.file_bytes;
  FileWriter writer(path);
  WriteLayout(layout, path.string(), writer, [&](const TensorSource* tensor, uint64_t checksum) {
    if (tensor == nullptr) {
      record.checksum = checksum;
    } else {
      record.tensors.emplace(tensor->name, checksum);
    }
  });
  writer.Finish();
  return record;
}

void WriteAll(const fs::path& folder, int64_t step, std::span<const TensorSource> tensors,
              const nlohmann::json& state, int64_t shard_bytes) {
  Manifest manifest;
  manifest.step = step;
  manifest.files.emplace(kStateFile, WriteTextFile(folder / kStateFile, StateText(state)));
  const auto shards = PlanShards(tensors, shard_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = ShardName("tensors", i, shards.size());
    manifest.files.emplace(name, WriteShard(folder / name, shards[i]));
  }
  WriteTextFile(folder / kManifestFile, ManifestText(manifest));
  SyncFolder(folder);
}

// The folder becomes the checkpoint of its step.
void Publish(const fs::path& store, const fs::path& folder, int64_t step) {
  const std::string name = StepName(step);
  const std::string old_name = std::string(kOld) + name;
  const bool replaces = Exists(store / name);
  if (replaces) Rename(store / name, store / old_name);
  try {
    Rename(folder, store / name);
  } catch (const Error&) {
    if (replaces) Rename(store / old_name, store / name);
    throw;
  }
  SyncFolder(store);
  if (replaces) RemoveFolders(store, {old_name});
}

std::string Shortened(const std::vector<std::string>& problems) {
  constexpr size_t kMost = 10;
  const size_t shown = std::min(problems.size(), kMost);
  std::string text = Join(std::span(problems).first(shown), "; ");
  if (problems.size() > shown) text += fmt::format("; and {} more", problems.size() - shown);
  return text;
}

}  // namespace

CheckpointStore::CheckpointStore(fs::path folder, int64_t shard_bytes)
    : folder_(std::move(folder)), shard_bytes_(shard_bytes) {}

void CheckpointStore::Prepare(int64_t bytes_needed) const {
  CreateFolders(folder_);
  const FileLock lock(folder_ / kLockFile);
  CleanUp(folder_, lock);
  const fs::path probe = folder_ / fmt::format("{}probe-{}", kTemporary, getpid());
  CreateFolders(probe);
  try {
    WriteTextFile(probe / kStateFile, "{}\n");
    RequireSpace(folder_, bytes_needed);
  } catch (...) {
    RemoveTree(probe);
    throw;
  }
  RemoveTree(probe);
}

std::vector<int64_t> CheckpointStore::CompleteSteps() const {
  std::vector<int64_t> steps;
  for (const std::string& name : NamesIn(folder_)) {
    const bool is_old = name.starts_with(kOld);
    const auto step = StepOf(is_old ? std::string_view(name).substr(kOld.size()) : name);
    if (step.has_value() && IsComplete(FolderOf(folder_, *step))) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

void CheckpointStore::Save(int64_t step, std::span<const TensorSource> tensors,
                           const nlohmann::json& state, int64_t keep_latest) const {
  GT_CHECK(step >= 0, "the step is {}", step);
  CreateFolders(folder_);
  const FileLock lock(folder_ / kLockFile);
  CleanUp(folder_, lock);
  const fs::path temporary = folder_ / fmt::format("{}{}-{}", kTemporary, StepName(step), getpid());
  CreateFolders(temporary);
  try {
    WriteAll(temporary, step, tensors, state, shard_bytes_);
    Publish(folder_, temporary, step);
  } catch (...) {
    RemoveTree(temporary);
    throw;
  }
  RemoveOlder(folder_, CompleteSteps(), step, keep_latest);
}

CheckpointReader CheckpointStore::Open(int64_t step) const {
  const fs::path folder = FolderOf(folder_, step);
  if (!Exists(folder)) {
    Fail(ErrorCode::kCheckpointDamaged, "{}: there is no checkpoint of step {}{}", folder_.string(),
         step, OtherSteps(*this, step));
  }
  CheckpointReader reader;
  reader.step_ = step;
  reader.path_ = folder.string();
  const auto problems = VerifyCheckpoint(folder, step, reader.state_, reader.shards_);
  if (!problems.empty()) {
    Fail(ErrorCode::kCheckpointDamaged, "{}: the checkpoint of step {} is damaged: {}{}",
         folder.string(), step, Shortened(problems), OtherSteps(*this, step));
  }
  std::vector<TensorEntry> tensors;
  for (const SafetensorsFile& shard : reader.shards_) {
    tensors.insert(tensors.end(), shard.tensors().begin(), shard.tensors().end());
  }
  reader.table_ = TensorTable(std::move(tensors));
  return reader;
}

}  // namespace gt
