#include "gt/storage/checkpoint_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/storage/best_checkpoint.h"
#include "gt/storage/checkpoint_manifest.h"
#include "gt/storage/checkpoint_parts.h"
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
// In folders that gt fills or empties. A folder without it, or a manifest, is somebody else's, whatever it is
// called.
constexpr std::string_view kMarker = ".graphtrainer-unfinished";

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

bool IsOurs(const fs::path& path) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() != fs::file_type::directory) return false;
  // Made, and not marked yet, or emptied: nothing is lost with it.
  return fs::is_empty(path, error) || Exists(path / kMarker) || IsComplete(path);
}

// In one step: a crash leaves an empty folder or a marked one.
void Mark(const fs::path& folder) {
  const fs::path path = folder / kMarker;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) FailWriting(path, "cannot be created", errno);
  close(fd);
}

// The marker comes first and goes last, so that what a crash leaves is known.
void RemoveOurs(const fs::path& folder) {
  try {
    Mark(folder);
  } catch (const Error& error) {
    log::Warn("{}: cannot be removed: {}", folder.string(), error.message());
    return;
  }
  for (const std::string& name : NamesIn(folder)) {
    if (name != kMarker) RemoveTree(folder / name);
  }
  RemoveTree(folder);
}

// Takes the names away first and the data after that, so that a crash in between leaves no folder
// that looks like a checkpoint and lacks a part.
void RemoveFolders(const fs::path& store, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::vector<fs::path> trash;
  for (const std::string& name : names) {
    const fs::path target =
        store / fmt::format("{}{}-{}", kTrash, name.substr(name.find(kStep)), getpid());
    if (IsOurs(target)) RemoveOurs(target);
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
  for (const fs::path& path : trash) RemoveOurs(path);
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
  } else if (IsComplete(store / old_name)) {
    RemoveFolders(store, {old_name});
  }
}

void CleanUp(const fs::path& store, const FileLock& lock) {
  for (const std::string& name : NamesIn(store)) {
    if (name.starts_with(kOld) && StepOf(name.substr(kOld.size())).has_value()) {
      RecoverReplaced(store, name);
    } else if (IsLeftOver(name, lock) && IsOurs(store / name)) {
      log::Debug("{}: removing what a writer left behind", (store / name).string());
      RemoveOurs(store / name);
    }
  }
}

// Updates best.json and removes old checkpoints once `saved` is complete. In this order, so that
// best.json never names a checkpoint that is gone.
void ApplyRetention(const fs::path& store, const std::vector<int64_t>& steps, int64_t saved,
                    const Retention& retention) {
  const std::optional<BestCheckpoint> before = ReadBest(store);
  if (retention.best) {
    BestCheckpoint now = *retention.best;
    const bool is_older = now.step != saved;
    if (is_older) now.saved_for_this = before && before->step == now.step && before->saved_for_this;
    try {
      if (before != now) WriteBest(store, now);
    } catch (const Error& error) {
      log::Warn("{}; no checkpoint is removed", error.message());
      return;
    }
  }
  std::vector<std::string> names;
  for (const int64_t step : StepsToRemove(steps, saved, retention, before)) {
    names.push_back(StepName(step));
    // The run that wrote best.json kept its best checkpoint, this one does not.
    if (!retention.best && before && before->step == step) RemoveTree(store / kBestFile);
  }
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
  GT_CHECK(ParseJson(text, kLargeJson) == state,
           "the state of a checkpoint changes when it is written as JSON");
  return text;
}

FileRecord WriteTextFile(const fs::path& path, std::string_view text) {
  WriteFile(path, text);
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

std::string TemporaryName(int64_t step) {
  return fmt::format("{}{}-{}", kTemporary, StepName(step), getpid());
}

// The files of one rank. Alone, it uses the names that need no numbers of parts.
std::string PartStem(int64_t part, int64_t parts) {
  if (parts == 1) return "tensors";
  return fmt::format("tensors-part{:05}-of-{:05}", part + 1, parts);
}

TensorInfo WholeOf(const TensorPart& part) {
  const std::string& name = part.source.name;
  GT_CHECK(part.box.IsInside() && part.box.sizes == part.source.sizes,
           "tensor {} of sizes [{}] is given as the box {} of [{}]", Quoted(name),
           fmt::join(part.source.sizes, ", "), BoxText(part.box), fmt::join(part.box.whole, ", "));
  GT_CHECK(!ParsePieceName(name).has_value(), "the name {} is that of a piece", Quoted(name));
  return {.dtype = part.source.dtype, .sizes = part.box.whole};
}

// The parts under the names that they have in the files, and in `tensors` what they are parts of.
std::vector<TensorSource> StoredSources(std::span<const TensorPart> parts, TensorIndex& tensors) {
  std::vector<TensorSource> sources;
  sources.reserve(parts.size());
  for (const TensorPart& part : parts) {
    const TensorInfo info = WholeOf(part);
    const auto [found, is_new] = tensors.emplace(part.source.name, info);
    GT_CHECK(is_new || found->second == info, "tensor {} is {} and also {}",
             Quoted(part.source.name), InfoText(found->second), InfoText(info));
    const bool is_whole = part.box.IsWhole();
    // An empty tensor is whole and is stored, so that a reader finds its name.
    if (!is_whole && part.box.elements() == 0) continue;
    sources.push_back(part.source);
    if (!is_whole) sources.back().name = PieceName(part.source.name, part.box.offset);
  }
  return sources;
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

// What is published must be readable. The ranks' own words are no proof: their folder may not be
// this one, on machines that do not share a file system, and their boxes may leave a gap.
void RequireReadable(const fs::path& folder, int64_t step) {
  CheckpointContents contents;
  const auto problems = VerifyCheckpoint(folder, step, VerifyShare::None(), contents);
  if (problems.empty()) return;
  Fail(ErrorCode::kCannotWrite,
       "{}: what the ranks have written is no whole checkpoint of step {}: {}; all ranks must hold "
       "the whole model together and write into the same folder",
       folder.string(), step, Shortened(problems));
}

// Those that are in one piece, each once.
std::vector<TensorEntry> WholeTensors(const CheckpointContents& contents) {
  std::vector<TensorEntry> tensors;
  std::unordered_set<std::string_view> names;
  for (const SafetensorsFile& shard : contents.shards) {
    for (const TensorEntry& tensor : shard.tensors()) {
      const bool is_whole = contents.pieces.Info(tensor.name) != nullptr;
      if (is_whole && names.insert(tensor.name).second) tensors.push_back(tensor);
    }
  }
  return tensors;
}

}  // namespace

TensorPart WholePart(TensorSource source) {
  TensorBox box = TensorBox::All(source.sizes);
  return {std::move(source), std::move(box)};
}

int64_t MostAdded(int64_t existing, int64_t saves, int64_t keep_latest) {
  if (saves == 0) return 0;
  return std::clamp(keep_latest + 1 - existing, int64_t{1}, saves);
}

// The save that was begun and is neither committed nor abandoned. It keeps the folder locked.
class CheckpointStore::UnderWay {
 public:
  // Waiting for the lock would be waiting for oneself.
  void Claim(const std::string& temporary) {
    const std::lock_guard guard(mutex_);
    GT_CHECK(temporary_.empty(), "{} is neither committed nor abandoned", temporary_);
    temporary_ = temporary;
  }

  void Hold(std::unique_ptr<FileLock> lock) {
    const std::lock_guard guard(mutex_);
    lock_ = std::move(lock);
  }

  // Ends the save, and hands over the lock. False if there is no such save.
  bool End(std::string_view temporary, std::unique_ptr<FileLock>& lock) {
    const std::lock_guard guard(mutex_);
    if (temporary.empty() || temporary_ != temporary) return false;
    temporary_.clear();
    lock = std::move(lock_);
    return true;
  }

 private:
  std::mutex mutex_;
  std::string temporary_;  // empty: there is none
  std::unique_ptr<FileLock> lock_;
};

CheckpointStore::CheckpointStore(fs::path folder, int64_t shard_bytes)
    : folder_(std::move(folder)),
      shard_bytes_(shard_bytes),
      under_way_(std::make_shared<UnderWay>()) {}

void CheckpointStore::Prepare(int64_t bytes_needed) const {
  CreateFolders(folder_);
  const FileLock lock(folder_ / kLockFile);
  CleanUp(folder_, lock);
  const fs::path probe = folder_ / fmt::format("{}probe-{}", kTemporary, getpid());
  CreateFolders(probe);
  try {
    Mark(probe);
    WriteTextFile(probe / kStateFile, "{}\n");
    RequireSpace(folder_, bytes_needed);
  } catch (...) {
    RemoveOurs(probe);
    throw;
  }
  RemoveOurs(probe);
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

fs::path CheckpointStore::FolderOfStep(int64_t step) const { return FolderOf(folder_, step); }

void CheckpointStore::Save(int64_t step, std::span<const TensorSource> tensors,
                           const nlohmann::json& state, const Retention& retention) const {
  std::vector<TensorPart> parts;
  parts.reserve(tensors.size());
  for (const TensorSource& tensor : tensors) parts.push_back(WholePart(tensor));
  const std::string temporary = Begin(step);
  std::string written;
  try {
    written = WritePart(temporary, 0, 1, parts);
  } catch (...) {
    Abandon(temporary);
    throw;
  }
  Commit(step, temporary, {&written, 1}, state, retention);
}

std::string CheckpointStore::Begin(int64_t step) const {
  GT_CHECK(step >= 0, "the step is {}", step);
  std::string temporary = TemporaryName(step);
  under_way_->Claim(temporary);
  try {
    CreateFolders(folder_);
    auto lock = std::make_unique<FileLock>(folder_ / kLockFile);
    CleanUp(folder_, *lock);
    CreateFolders(folder_ / temporary);
    Mark(folder_ / temporary);
    under_way_->Hold(std::move(lock));
  } catch (...) {
    std::unique_ptr<FileLock> none;
    under_way_->End(temporary, none);
    throw;
  }
  return temporary;
}

std::string CheckpointStore::WritePart(const std::string& temporary, int64_t part, int64_t parts,
                                       std::span<const TensorPart> tensors) const {
  GT_CHECK(part >= 0 && part < parts, "part {} of {}", part, parts);
  GT_CHECK(temporary.starts_with(kTemporary) && temporary.find('/') == std::string::npos,
           "{} is not what Begin returns", Quoted(temporary));
  const fs::path folder = folder_ / temporary;
  PartRecord record = {
      .part = part, .parts = parts, .temporary = temporary, .files = {}, .tensors = {}};
  const std::vector<TensorSource> sources = StoredSources(tensors, record.tensors);
  const auto shards = PlanShards(sources, shard_bytes_);
  for (size_t i = 0; i < shards.size(); ++i) {
    if (parts > 1 && shards[i].empty()) continue;  // a rank that holds nothing
    const std::string name = ShardName(PartStem(part, parts), i, shards.size());
    record.files.emplace(name, WriteShard(folder / name, shards[i]));
  }
  SyncFolder(folder);
  return PartText(record);
}

void CheckpointStore::Commit(int64_t step, const std::string& temporary,
                             std::span<const std::string> parts, const nlohmann::json& state,
                             const Retention& retention) const {
  GT_CHECK(temporary.starts_with(fmt::format("{}{}-", kTemporary, StepName(step))),
           "{} is not of step {}", Quoted(temporary), step);
  std::unique_ptr<FileLock> lock;  // until the end of this function
  GT_CHECK(under_way_->End(temporary, lock), "{} was not begun by this store, or has ended",
           temporary);
  const fs::path folder = folder_ / temporary;
  try {
    Manifest manifest = ManifestOf(step, temporary, parts);
    manifest.files.emplace(kStateFile, WriteTextFile(folder / kStateFile, StateText(state)));
    WriteTextFile(folder / kManifestFile, ManifestText(manifest));
    RemoveTree(folder / kMarker);
    SyncFolder(folder);
    RequireReadable(folder, step);
    Publish(folder_, folder, step);
  } catch (...) {
    RemoveOurs(folder);
    throw;
  }
  ApplyRetention(folder_, CompleteSteps(), step, retention);
}

void CheckpointStore::Abandon(const std::string& temporary) const {
  std::unique_ptr<FileLock> lock;
  if (under_way_->End(temporary, lock)) RemoveOurs(folder_ / temporary);
}

CheckpointReader CheckpointStore::Open(int64_t step, VerifyShare share) const {
  const fs::path folder = FolderOf(folder_, step);
  if (!Exists(folder)) {
    Fail(ErrorCode::kCheckpointDamaged, "{}: there is no checkpoint of step {}{}", folder_.string(),
         step, OtherSteps(*this, step));
  }
  CheckpointReader reader;
  reader.step_ = step;
  reader.path_ = folder.string();
  const auto problems = VerifyCheckpoint(folder, step, share, reader.contents_);
  if (!problems.empty()) {
    Fail(ErrorCode::kCheckpointDamaged, "{}: the checkpoint of step {} is damaged: {}{}",
         folder.string(), step, Shortened(problems), OtherSteps(*this, step));
  }
  reader.whole_ = TensorTable(WholeTensors(reader.contents_));
  return reader;
}

}  // namespace gt
