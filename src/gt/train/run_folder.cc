#include "gt/train/run_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "gt/base/build_id.h"
#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/logging.h"
#include "gt/base/read_file.h"
#include "gt/base/text.h"
#include "gt/job/dump_folder.h"
#include "gt/storage/checkpoint_store.h"
#include "gt/storage/file_writer.h"
#include "gt/train/checkpoint.h"
#include "gt/train/job_inputs.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "run.json";
constexpr const char* kPrevious = "previous";
constexpr const char* kLatest = "latest";
// Everything that a run writes to its folder, but for checkpoints, which stay, and the lock.
constexpr auto kResults = std::to_array<std::string_view>({
    "metrics.jsonl",
    "config.toml",
    kPlanFile,
    "overlap.txt",
    "hf",
    "tb",
    "profile",
    "passes",
    "nonfinite",
});

bool IsThere(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found && !error;
}

bool AreSame(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error);
}

// What tells files apart, however they are reached.
using FileIdentity = std::pair<dev_t, ino_t>;

std::optional<FileIdentity> IdentityOf(const fs::path& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return FileIdentity(info.st_dev, info.st_ino);
}

// Every file below a path, the path itself included, by identity.
void AddFiles(const fs::path& path, std::map<FileIdentity, fs::path>& files) {
  if (const auto identity = IdentityOf(path)) files.emplace(*identity, path);
  std::error_code error;
  for (fs::recursive_directory_iterator i(path, error), end; !error && i != end;
       i.increment(error)) {
    if (const auto identity = IdentityOf(i->path())) files.emplace(*identity, i->path());
  }
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
    const std::optional<nlohmann::json> entry = ParseJsonIfGood(line);
    if (!entry || !entry->is_object()) continue;
    const auto found = entry->find("step");
    if (found != entry->end() && found->is_number_integer()) step = found->get<int64_t>();
  }
  return step;
}

std::string TimeOf(const fs::path& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? LocalTimeText(info.st_mtime) : "an unknown time";
}

// Whether gt gives this name to a result: one of the list, or that and a number if it was taken.
bool IsNameOfResult(const std::string& name) {
  return std::any_of(kResults.begin(), kResults.end(), [&name](std::string_view result) {
    if (!name.starts_with(result)) return false;
    const std::string_view rest = std::string_view(name).substr(result.size());
    return rest.empty() || (rest.size() > 1 && rest.front() == '-' &&
                            rest.find_first_not_of("0123456789", 1) == std::string_view::npos);
  });
}

std::optional<nlohmann::json> ReadRunManifest(const fs::path& path) {
  try {
    return ParseJsonIfGood(ReadWholeFile(path));
  } catch (const UnreadableFile&) {
    return std::nullopt;
  }
}

// The names in the folder's manifest: what gt has written there. No name leads out of the folder, whatever
// the file says.
std::vector<std::string> WrittenByGt(const fs::path& folder) {
  const fs::path path = folder / kManifest;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  const std::optional<nlohmann::json> manifest = ReadRunManifest(path);
  if (!manifest || !manifest->is_object() || !manifest->contains("results")) return {};
  std::vector<std::string> names;
  for (const nlohmann::json& name : (*manifest)["results"]) {
    if (name.is_string() && IsNameOfResult(name)) names.push_back(name);
  }
  return names;
}

void WriteManifest(const fs::path& folder, const std::vector<std::string>& names) {
  const nlohmann::json manifest = {
      {"gt", BuildId()}, {"written", LocalTimeText(std::time(nullptr))}, {"results", names}};
  WriteFile(folder / kManifest, manifest.dump(2) + "\n");
}

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void AddName(std::vector<std::string>& names, const std::string& name) {
  if (!Contains(names, name)) names.push_back(name);
}

// The configuration that a folder's results are of; nothing: it cannot be read.
std::optional<Config> ConfigOfResults(const fs::path& folder) {
  try {
    Config config;
    LoadTomlFile((folder / "config.toml").string(), &config);
    return config;
  } catch (const Error& error) {
    log::Debug("{}: {}", folder.string(), error.what());
    return std::nullopt;
  }
}

// "training.seed 42 -> 43, model.flavor ... and 3 more"
std::string ChangesText(const std::vector<OptionChange>& changes) {
  constexpr size_t kShown = 4;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, changes.size()); ++i) {
    shown.push_back(fmt::format("{} {} -> {}", changes[i].name, changes[i].before, changes[i].now));
  }
  const size_t more = changes.size() - shown.size();
  return gt::Join(shown, ", ") + (more == 0 ? "" : fmt::format(" and {} more", more));
}

bool HasCheckpoints(Config config, const fs::path& folder) {
  config.dump_folder = folder.string();
  return !CheckpointStore(CheckpointFolder(config)).CompleteSteps().empty();
}

// The run that `latest` names, if this job continues it.
std::optional<fs::path> RunToContinue(const Config& config, const fs::path& runs,
                                      std::vector<std::string>* notes) {
  std::error_code error;
  const fs::path target = fs::read_symlink(runs / kLatest, error);
  if (error) return std::nullopt;
  const fs::path last = runs / target;
  const std::optional<Config> before = ConfigOfResults(last);
  if (!before || !HasCheckpoints(config, last)) return std::nullopt;
  std::vector<OptionChange> changes = JobDifferences(*before, config);
  std::erase_if(changes, [](const OptionChange& one) { return one.name == "training.steps"; });
  if (changes.empty()) return last;
  notes->push_back(
      fmt::format("{} is a run of another job ({}): a new one begins; --dump_folder {} "
                  "continues it",
                  (runs / kLatest).string(), ChangesText(changes), last.string()));
  return std::nullopt;
}

}  // namespace

std::string ChooseRunFolder(const Config& config, std::vector<std::string>* notes) {
  if (!IsFolderPerRun(config.dump_folder)) return FillDumpFolder(config, std::time(nullptr));
  if (config.checkpoint.enable) {
    const fs::path runs = FolderOfRuns(config.dump_folder);
    if (const auto last = RunToContinue(config, runs, notes)) return last->string();
  }
  const std::string name = FillDumpFolder(config, std::time(nullptr));
  std::string folder = name;
  for (int i = 2; IsThere(folder); ++i) folder = fmt::format("{}-{}", name, i);
  return folder;
}

RunFolder::RunFolder(const Config& config, fs::path latest)
    : config_(config),
      path_(config.dump_folder),
      latest_(std::move(latest)),
      made_here_(!IsThere(path_)) {
  claim_.emplace(path_);
  written_ = WrittenByGt(path_);
  const fs::path checkpoints = CheckpointFolder(config);
  if (config.checkpoint.enable) {
    CreateFolders(checkpoints);
    if (!AreSame(checkpoints, path_)) checkpoints_claim_.emplace(checkpoints);
  }
  RefuseToWriteInputs();
  RemoveTornFiles();
  RequireWritable(path_ / kManifest);
  if (BeginsAnew()) {
    RefuseOthersResults();
    if (!Results().empty()) RequireWritable(path_ / kPrevious / kManifest);
    return;
  }
  RequireWritable(path_ / "config.toml");
  RequireWritable(path_ / "metrics.jsonl");
}

RunFolder::~RunFolder() {
  if (!made_here_ || begun_) return;
  std::error_code ignored;  // what is not empty stays
  fs::remove(path_ / config_.checkpoint.folder, ignored);
  claim_.reset();
  fs::remove(path_ / ".run.lock", ignored);
  fs::remove(path_, ignored);
}

// Files are compared by identity: links and other spellings of a path lead to the same file.
void RunFolder::RefuseToWriteInputs() const {
  std::map<FileIdentity, fs::path> outputs;
  for (std::string_view name : kResults) {
    if (name != "hf" || config_.checkpoint.last_save_in_hf) AddFiles(path_ / name, outputs);
  }
  if (outputs.empty()) return;
  std::vector<InputFile> inputs = InputFilesOf(config_);
  for (const std::string& file : config_.config_files) {
    // A run may be started again from the configuration that gt has left.
    const bool is_own = Contains(written_, "config.toml") && AreSame(file, path_ / "config.toml");
    if (!is_own) inputs.push_back({"--config", fs::path(file).filename().string(), file});
  }
  for (const InputFile& input : inputs) {
    const auto identity = IdentityOf(input.path);
    const auto found = identity ? outputs.find(*identity) : outputs.end();
    if (found == outputs.end()) continue;
    Fail(ErrorCode::kConflictingOptions,
         "{} names {}, which this run would write or move as {}; choose another --dump_folder "
         "(now {})",
         input.option, input.path.string(), found->second.string(), path_.string());
  }
}

// What a run that was killed while it wrote a file has left of it. The folder is claimed: nobody else writes.
void RunFolder::RemoveTornFiles() const {
  std::error_code error;
  for (fs::directory_iterator i(path_, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    const bool is_torn = IsTemporaryOf(name, kManifest) ||
                         std::ranges::any_of(kResults, [&name](std::string_view result) {
                           return IsTemporaryOf(name, result);
                         });
    std::error_code ignored;
    if (is_torn && i->is_regular_file(ignored)) fs::remove(i->path(), ignored);
  }
}

bool RunFolder::BeginsAnew() const {
  return !config_.checkpoint.enable || !HasCheckpoints(config_, path_);
}

void RunFolder::RefuseOthersResults() const {
  if (config_.overwrite) return;
  const std::string advice =
      fmt::format("--overwrite moves them to {}; or choose another --dump_folder",
                  (path_ / kPrevious).string());
  std::vector<std::string> foreign;
  for (std::string_view name : kResults) {
    if (!Contains(written_, name) && IsThere(path_ / name)) foreign.emplace_back(name);
  }
  if (!foreign.empty()) {
    Fail(ErrorCode::kFolderHasResults,
         "{} has {}, and no {} of gt says that a run has written them; {}", path_.string(),
         Join(foreign, ", "), kManifest, advice);
  }
  if (Results().empty()) return;
  const std::optional<Config> before = ConfigOfResults(path_);
  if (!before) {
    Fail(ErrorCode::kFolderHasResults,
         "{} has results of an earlier run, whose config.toml cannot be read; {}", path_.string(),
         advice);
  }
  if (const std::vector<OptionChange> changes = JobDifferences(*before, config_);
      !changes.empty()) {
    Fail(ErrorCode::kFolderHasResults, "{} has results of another configuration ({}); {}",
         path_.string(), ChangesText(changes), advice);
  }
}

// Those of an earlier run that are there.
std::vector<std::string> RunFolder::Results() const {
  std::vector<std::string> results;
  for (std::string_view name : kResults) {
    if (IsThere(path_ / name) && !Contains(early_, name)) results.emplace_back(name);
  }
  return results;
}

std::string RunFolder::MovedLine() const {
  const std::vector<std::string> results = Results();
  if (results.empty()) return "";
  const fs::path metrics = path_ / "metrics.jsonl";
  const int64_t steps = LastStepIn(metrics);
  const std::string run = steps == 0 ? "an earlier run"
                                     : fmt::format("a run of {}, {} step{},", TimeOf(metrics),
                                                   steps, steps == 1 ? "" : "s");
  return fmt::format("the results of {} move to {} after the first step: {}", run,
                     (path_ / kPrevious).string(), Join(results, ", "));
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
  std::vector<std::string> lines = {MovedLine(), CheckpointsLine()};
  std::erase(lines, "");
  return lines;
}

void RunFolder::Begin(bool continues) {
  if (std::exchange(begun_, true)) return;
  if (!continues) {
    MoveToPrevious(Results());
    written_ = early_;
  }
  for (const char* name : {"metrics.jsonl", "config.toml", kPlanFile, "overlap.txt"}) {
    AddName(written_, name);
  }
  WriteManifest(path_, written_);
  if (!latest_.empty()) PointLatestHere();
}

void RunFolder::WillWrite(const std::string& name) {
  if (!begun_) {
    if (IsThere(path_ / name)) MoveToPrevious({name});
    AddName(early_, name);
  }
  AddName(written_, name);
  WriteManifest(path_, written_);
}

// There is one generation of previous results: those that are there already are removed, as far as they are
// gt's. The manifest of previous/ tells them from what somebody else keeps there.
void RunFolder::MoveToPrevious(const std::vector<std::string>& names) {
  if (names.empty()) return;
  const fs::path previous = path_ / kPrevious;
  CreateFolders(previous);
  std::vector<std::string> kept;
  for (const std::string& old : WrittenByGt(previous)) {
    const bool is_replaced = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return old == name || old.starts_with(name + "-");
    });
    if (is_replaced) {
      fs::remove_all(previous / old);
    } else {
      kept.push_back(old);
    }
  }
  for (const std::string& name : names) {
    std::string target = name;
    for (int i = 2; IsThere(previous / target); ++i) target = fmt::format("{}-{}", name, i);
    if (Contains(written_, name)) AddName(kept, target);
    WriteManifest(previous, kept);
    Rename(path_ / name, previous / target);
  }
}

// By one rename, so that the link is never missing. Something else of that name is the user's.
void RunFolder::PointLatestHere() const {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(latest_, error);
  if (fs::exists(status) && !fs::is_symlink(status)) {
    log::Warn("{} is no link, so that it cannot name the last run", latest_.string());
    return;
  }
  const fs::path fresh = latest_.string() + fmt::format(".{}", getpid());
  fs::remove(fresh, error);
  fs::create_directory_symlink(path_.lexically_relative(latest_.parent_path()), fresh, error);
  if (!error) fs::rename(fresh, latest_, error);
  if (error) log::Warn("{} cannot name the last run: {}", latest_.string(), error.message());
}

std::string FolderWithoutCheckpoints(const std::string& folder) {
  std::string name = folder;
  for (int i = 2; !CheckpointStore(name).CompleteSteps().empty(); ++i) {
    name = fmt::format("{}-{}", folder, i);
  }
  return name;
}

}  // namespace gt
