#include "gt/train/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <tuple>
#include <unordered_map>

#include "gt/base/bounded_list.h"
#include "gt/base/byte_text.h"
#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/logging.h"
#include "gt/base/text.h"
#include "gt/torch_bridge/convert.h"
#include "gt/torch_bridge/stored_tensor.h"
#include "gt/torch_bridge/tensor_fill.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGenerator = "random.";

constexpr const char* kArchitecture = "architecture";

// What two runs must have in common for one to continue the other's checkpoint: what the model is, in
// whatever way it was asked for.
nlohmann::json IdentityOf(const Config& config, const LanguageModel& model) {
  return {{kArchitecture, model.HfConfigJson()}, {"dtype", EnumName(config.training.dtype)}};
}

at::Tensor GeneratorState(at::Device device) {
  return at::globalContext().defaultGenerator(device).get_state();
}

constexpr const char* kBest = "best";

nlohmann::json StateOf(const Config& config, const LanguageModel& model, const Progress& progress) {
  nlohmann::json state = {{"step", progress.step},
                          {"tokens", progress.tokens},
                          {"batches", progress.batches},
                          {"identity", IdentityOf(config, model)},
                          {"config", ToToml(config)}};
  if (progress.best) {
    state[kBest] = {{"step", progress.best->step},
                    {"validation_loss", progress.best->validation_loss}};
  }
  return state;
}

// Under the names that checkpoints have.
std::vector<nn::StateTensor> ModelState(LanguageModel& model) {
  std::vector<nn::StateTensor> states = nn::NamedState(model);
  for (nn::StateTensor& state : states) state.name = "model." + state.name;
  return states;
}

// Every tensor must be there with its very shape and dtype; all differences are one error, and then
// nothing has been changed.
void FillFrom(const CheckpointReader& reader, const std::vector<nn::StateTensor>& targets) {
  std::vector<std::string> problems;
  for (const nn::StateTensor& target : targets) {
    const TensorInfo* stored = reader.Info(target.name);
    if (stored == nullptr) {
      problems.push_back("missing: " + target.name);
    } else if (target.box.whole != stored->sizes ||
               ToTorch(stored->dtype) != target.tensor.scalar_type()) {
      problems.push_back(target.name + " has another shape or dtype");
    }
  }
  if (!problems.empty()) {
    Fail(ErrorCode::kCheckpointMismatch,
         "the checkpoint {} is of another model:\n  {}\nUse the settings it was made with, or "
         "another --checkpoint.folder",
         reader.path(), JoinFirst(problems, "\n  "));
  }
  std::vector<FillPiece> pieces;
  for (const nn::StateTensor& target : targets) {
    at::Tensor tensor = target.tensor.detach();
    for (TensorBox& box : SplitBox(target.box, kFillElements)) {
      at::Tensor destination = ViewOfBox(tensor, target.box, box);
      auto read = [&reader, &target, box = std::move(box)](const at::Tensor& out) {
        reader.Read(target.name, box,
                    {static_cast<std::byte*>(out.mutable_data_ptr()), out.nbytes()});
      };
      pieces.push_back({std::move(destination), std::move(read)});
    }
  }
  FillTensors(std::move(pieces));
}

void RestoreGenerator(const CheckpointReader& reader, const std::string& name, at::Device device) {
  const TensorInfo* stored = reader.Info(kGenerator + name);
  if (stored == nullptr) return;  // saved on a machine without this device
  const at::Tensor now = GeneratorState(device);
  if (stored->sizes != now.sizes().vec() || ToTorch(stored->dtype) != now.scalar_type()) {
    Fail(ErrorCode::kCheckpointMismatch,
         "the checkpoint {}: {}{} is no state of a generator of random numbers", reader.path(),
         kGenerator, name);
  }
  at::Tensor state = at::empty_like(now);
  reader.Read(kGenerator + name, TensorBox::All(stored->sizes),
              {static_cast<std::byte*>(state.mutable_data_ptr()), state.nbytes()});
  at::Generator generator = at::globalContext().defaultGenerator(device);
  generator.set_state(state);
}

// "hidden_size 256 -> 512", for each key that differs.
void AddDifferences(const nlohmann::json& theirs, const nlohmann::json& mine,
                    std::vector<std::string>& differences) {
  auto text = [](const nlohmann::json& json, const std::string& key) {
    return json.contains(key) ? ShortJson(json[key]) : "nothing";
  };
  nlohmann::json keys = theirs;
  keys.update(mine);
  for (const auto& [key, value] : keys.items()) {
    const bool is_same = theirs.contains(key) && mine.contains(key) && theirs[key] == mine[key];
    if (is_same) continue;
    differences.push_back(fmt::format("{} {} -> {}", key, text(theirs, key), text(mine, key)));
  }
}

void RequireSameIdentity(const CheckpointReader& reader, const SavedState& state,
                         const Config& config, const LanguageModel& model) {
  nlohmann::json mine = IdentityOf(config, model), theirs = state.identity;
  // An older version wrote how the model had been asked for. Shapes are compared in any case.
  if (!theirs.contains(kArchitecture)) theirs[kArchitecture] = mine[kArchitecture];
  std::vector<std::string> differences;
  AddDifferences(theirs[kArchitecture], mine[kArchitecture], differences);
  AddDifferences({{"training.dtype", theirs["dtype"]}}, {{"training.dtype", mine["dtype"]}},
                 differences);
  if (differences.empty()) return;
  Fail(ErrorCode::kCheckpointMismatch,
       "the checkpoint {} is of another model than this run's:\n  {}\nUse the settings it was made "
       "with, or another --checkpoint.folder",
       reader.path(), JoinFirst(differences, "\n  "));
}

// Nothing if this version does not know some of its options.
std::optional<Config> ConfigOf(const SavedState& state) {
  if (!state.config) return std::nullopt;
  Config config;
  try {
    LoadToml(*state.config, "the checkpoint's configuration", &config);
  } catch (const Error& error) {
    log::Warn("cannot tell what has changed since the checkpoint was made: {}", error.what());
    return std::nullopt;
  }
  return config;
}

// Whether the validation losses of both runs can be compared.
bool ValidatesAlike(const Config& before, const Config& now) {
  const auto data = [](const Config& config) {
    return std::tuple(config.validation.dataset_path, config.validation.split,
                      config.validation.steps, config.training.text_field);
  };
  return data(before) == data(now);
}

// What the checkpoint's run did otherwise. Both configurations with the sequences of a step.
std::vector<OptionChange> ChangesSince(Config before, int64_t sequences_then, Config now,
                                       int64_t sequences_now) {
  if (before.training.global_batch_size == 0) before.training.global_batch_size = sequences_then;
  if (now.training.global_batch_size == 0) now.training.global_batch_size = sequences_now;
  return TrajectoryChanges(before, now);
}

// What a rank sends instead of its part when it could not write it.
constexpr char kFailed = '!';

// Saves after `step`: every so many steps, and the last one.
int64_t SavesAfter(int64_t step, int64_t interval, int64_t last) {
  return step >= last ? 0 : (last - 1) / interval - step / interval + 1;
}

}  // namespace

std::string CheckpointFolder(const Config& config) {
  return (fs::path(config.dump_folder) / config.checkpoint.folder).string();
}

Checkpointer::Checkpointer(const Config& config, LanguageModel& model, const AdamW& optimizer,
                           at::Device device, World& world, const JobShare& share)
    : config_(config),
      model_(model),
      optimizer_(optimizer),
      device_(device),
      world_(world),
      share_(share),
      folder_(CheckpointFolder(config)),
      store_(folder_),
      saver_(store_) {}

// An optimizer's tensors are spread like the parameters they belong to; counts of steps are whole.
std::vector<nn::StateTensor> Checkpointer::ModelAndOptimizer() const {
  std::vector<nn::StateTensor> states = ModelState(model_);
  std::unordered_map<std::string, nn::StateTensor> parts;
  for (const nn::StateTensor& state : nn::NamedState(model_)) parts.emplace(state.name, state);
  for (auto& [name, parameter, tensor] : optimizer_.State()) {
    if (tensor.dim() > 0) {
      const nn::StateTensor& part = parts.at(parameter);
      states.push_back({name, tensor, part.box, part.owned});
    } else {
      states.push_back({name, tensor, TensorBox::All(tensor.sizes().vec())});
    }
  }
  return states;
}

// Of ranks that hold the very same part, one writes it.
std::vector<TensorPart> Checkpointer::PartsFrom(Source source) const {
  std::vector<TensorPart> parts;
  const bool copies = source == Source::kCopies;
  auto add = [&](const std::string& name, const at::Tensor& tensor, const TensorBox& box) {
    at::Tensor written =
        copies ? tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true) : tensor;
    parts.push_back({SourceOf(name, written), box});
  };
  for (const nn::StateTensor& part : ModelAndOptimizer()) {
    if (part.IsOwnedBy(world_.rank())) add(part.name, part.tensor, part.box);
  }
  if (!world_.first()) return parts;
  auto add_generator = [&](const char* name, at::Device device) {
    at::Tensor state = GeneratorState(device);
    add(std::string(kGenerator) + name, state, TensorBox::All(state.sizes().vec()));
  };
  add_generator("cpu", at::kCPU);
  if (device_.is_cuda()) add_generator("cuda", device_);
  return parts;
}

int64_t Checkpointer::BytesOfOne() const {
  int64_t bytes = 1 << 20;
  for (const nn::StateTensor& part : ModelAndOptimizer()) {
    bytes += TensorBox::All(part.box.whole).elements() *
             static_cast<int64_t>(part.tensor.element_size());
  }
  return bytes;
}

void Checkpointer::Prepare() const {
  if (world_.first()) store_.Prepare(BytesOfOne());
}

SpaceNeed Checkpointer::SpaceAfter(int64_t step) const {
  const CheckpointSection& options = config_.checkpoint;
  const int64_t last = config_.training.steps, keep = options.keep_latest_k;
  const int64_t saves = SavesAfter(step, options.interval, last);
  const std::vector<int64_t> steps = store_.CompleteSteps();
  const int64_t there = std::upper_bound(steps.begin(), steps.end(), step) - steps.begin();
  const int64_t bytes = BytesOfOne(), free_bytes = FreeSpace(folder_);
  if (keep == 0 && free_bytes / bytes < saves) {
    log::Warn(
        "{} has room for {} of the {} checkpoints of {} that --checkpoint.keep_latest_k 0 "
        "keeps; move some away in time, or give a number",
        folder_, free_bytes / bytes, saves, ExactByteText(bytes));
  }
  // The best checkpoint is kept besides the latest ones, and each validation may save a better one.
  const int64_t best = options.keep_best ? 1 : 0;
  const int64_t most = saves + best * SavesAfter(step, config_.validation.freq, last);
  const int64_t added =
      keep == 0 ? std::min<int64_t>(most, 1 + best) : MostAdded(there, most, keep + best);
  return {.folder = folder_,
          .bytes = added * bytes,
          .what = fmt::format("{} more checkpoint{} of {}", added, added == 1 ? "" : "s",
                              ExactByteText(bytes))};
}

Retention Checkpointer::RetentionAt(const Progress& progress) const {
  const CheckpointSection& options = config_.checkpoint;
  return {options.keep_latest_k, options.keep_best ? progress.best : std::nullopt};
}

std::function<void()> Checkpointer::SaveTask(const CheckpointStore& store, const Progress& progress,
                                             const Retention& retention, Source source) {
  std::string name = fmt::format("checkpoint/{}", saves_++);
  nlohmann::json state = StateOf(config_, model_, progress);
  nlohmann::json data = {{"rows", config_.training.local_batch_size}};
  std::vector<TensorPart> parts = PartsFrom(source);
  int64_t ranks = world_.size(), rank = world_.rank();
  const std::vector<int64_t> savers = share_.savers();
  const int64_t step = progress.step;
  if (ranks == 1) {
    data["loaders"] = progress.data;
    state["data"] = std::move(data);
    std::vector<TensorSource> sources;
    for (TensorPart& part : parts) sources.push_back(std::move(part.source));
    return [store, step, retention, sources = std::move(sources), state = std::move(state)] {
      store.Save(step, sources, state, retention);
    };
  }
  const ReaderRange& readers = share_.readers();
  for (int64_t reader = readers.first; reader < readers.last; ++reader) {
    if (savers[static_cast<size_t>(reader)] != rank) continue;
    world_.Publish(fmt::format("{}/data/{}", name, reader),
                   progress.data[static_cast<size_t>(reader - readers.first)].dump());
  }
  return [this, store, name, step, retention, savers, ranks, rank, parts = std::move(parts),
          state = std::move(state), data = std::move(data)]() mutable {
    bool leads = rank == 0;
    std::string temporary;
    try {
      if (leads) temporary = store.Begin(step);
    } catch (const Error& error) {
      world_.Publish(name + "/folder", kFailed + error.message());
      throw;
    }
    if (leads) {
      world_.Publish(name + "/folder", temporary);
    } else {
      temporary = world_.Read(name + "/folder", 0);
      if (temporary.starts_with(kFailed)) {
        Fail(ErrorCode::kCannotWrite, "rank 0 could not begin the checkpoint of step {}: {}", step,
             temporary.substr(1));
      }
    }
    std::string mine;
    try {
      mine = store.WritePart(temporary, rank, ranks, parts);
    } catch (const std::exception& error) {
      mine = std::string(1, kFailed) + error.what();
    }
    world_.Publish(fmt::format("{}/part/{}", name, rank), mine);
    if (!leads) {
      std::string outcome = world_.Read(name + "/outcome", 0);
      if (!outcome.empty()) Fail(ErrorCode::kCannotWrite, "{}", outcome);
      return;
    }
    try {
      std::vector<std::string> texts;
      for (int64_t i = 0; i < ranks; ++i) {
        texts.push_back(world_.Read(fmt::format("{}/part/{}", name, i), i));
        if (texts.back().starts_with(kFailed)) {
          Fail(ErrorCode::kCannotWrite, "rank {} could not write its part of step {}: {}", i, step,
               texts.back().substr(1));
        }
      }
      for (size_t i = 0; i < savers.size(); ++i) {
        data["loaders"].push_back(
            ParseJson(world_.Read(fmt::format("{}/data/{}", name, i), savers[i]), kLargeJson));
      }
      state["data"] = std::move(data);
      store.Commit(step, temporary, texts, state, retention);
      world_.Publish(name + "/outcome", "");
    } catch (const std::exception& error) {
      store.Abandon(temporary);
      world_.Publish(name + "/outcome", error.what());
      throw;
    }
  };
}

double Checkpointer::Save(const Progress& progress) {
  auto start = std::chrono::steady_clock::now();
  if (config_.checkpoint.async_mode == CheckpointAsync::kDisabled) {
    SaveAndWait(progress);
  } else {
    saver_.Wait();  // before the next copy is made: host memory holds one at a time
    saver_.Start(SaveTask(store_, progress, RetentionAt(progress), Source::kCopies));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Checkpointer::SaveAndWait(const Progress& progress) {
  saver_.Wait();
  SaveTask(store_, progress, RetentionAt(progress), Source::kTensors)();
}

void Checkpointer::SaveTo(const std::string& folder, const Progress& progress) {
  CheckpointStore store{fs::path(folder)};
  if (world_.first()) store.Prepare(0);
  SaveTask(store, progress, /*retention=*/0, Source::kTensors)();
}

// What the first rank sees counts for all: another rank may look at the folder a moment later.
std::vector<int64_t> Checkpointer::AgreeOnSteps() {
  std::vector<int64_t> steps;
  if (world_.first()) steps = store_.CompleteSteps();
  if (world_.size() == 1) return steps;
  std::string name = fmt::format("steps/{}", saves_++);
  if (world_.first()) {
    world_.Publish(name, nlohmann::json(steps).dump());
    return steps;
  }
  return ParseJson(world_.Read(name, 0)).get<std::vector<int64_t>>();
}

CheckpointReader Checkpointer::Open(const std::vector<int64_t>& steps, SavedState* state) {
  VerifyShare share{world_.rank(), world_.size()};
  for (size_t i = steps.size(); i-- > 0;) {
    std::optional<CheckpointReader> reader;
    std::optional<Error> damage;
    try {
      reader = store_.Open(steps[i], share);
      *state = ReadSavedState(reader->state(), steps[i], reader->path());
      if (state->data.loaders.empty()) {
        Fail(ErrorCode::kCheckpointDamaged,
             "{}/state.json: 'loaders' is empty, so no run continues", reader->path());
      }
    } catch (const Error& error) {
      bool last = i == 0 || error.code() != ErrorCode::kCheckpointDamaged;
      if (last && world_.size() == 1) throw;
      damage = error;
    }
    // Each rank has looked at a part of the files.
    double found = world_.Sum({damage ? 1.0 : 0.0})[0];
    if (found == 0) return std::move(*reader);
    if (i == 0 || (damage && damage->code() != ErrorCode::kCheckpointDamaged)) {
      if (damage) throw *damage;
      Fail(ErrorCode::kCheckpointDamaged,
           "another rank found damage in the checkpoint of step {} in {}", steps[i], folder_);
    }
    if (damage) log::Warn("{}; trying the one before", damage->what());
  }
  Fail(ErrorCode::kCheckpointDamaged, "there is no complete checkpoint in '{}'", folder_);
}

// A best checkpoint that is gone cannot be kept: a run that went further may have replaced it by a
// better one.
std::optional<BestCheckpoint> Checkpointer::BestIn(const SavedState& state,
                                                   const std::optional<Config>& before,
                                                   const std::vector<int64_t>& steps) const {
  if (!config_.checkpoint.keep_best || !state.best) return std::nullopt;
  const BestCheckpoint& best = *state.best;
  if (std::find(steps.begin(), steps.end(), best.step) == steps.end()) return std::nullopt;
  if (before && ValidatesAlike(*before, config_)) return best;
  if (world_.first()) {
    log::Info("validation has changed: the loss of {:.5f} after step {} is no longer the best",
              best.validation_loss, best.step);
  }
  return std::nullopt;
}

std::optional<DataProgress> Checkpointer::Load(Progress* progress) {
  const std::vector<int64_t> there = AgreeOnSteps();
  std::vector<int64_t> steps = there;
  bool chosen = config_.checkpoint.load_step >= 0;
  if (steps.empty() && !chosen) return std::nullopt;
  if (chosen) steps = {config_.checkpoint.load_step};
  SavedState state;
  CheckpointReader reader = Open(steps, &state);
  RequireSameIdentity(reader, state, config_, model_);
  FillFrom(reader, ModelAndOptimizer());
  RestoreGenerator(reader, "cpu", at::kCPU);
  if (device_.is_cuda()) RestoreGenerator(reader, "cuda", device_);
  progress->step = state.step;
  progress->tokens = state.tokens;
  progress->batches = state.batches;
  DataProgress& data = state.data;
  if (data.rows == 0) data.rows = config_.training.local_batch_size;
  const std::optional<Config> before = ConfigOf(state);
  progress->best = BestIn(state, before, there);
  if (!before) return data;
  changes_ = ChangesSince(
      *before, data.rows * static_cast<int64_t>(data.loaders.size()), config_,
      config_.training.local_batch_size * static_cast<int64_t>(share_.savers().size()));
  return data;
}

int64_t LoadModelFromCheckpoint(const std::string& folder, int64_t step, LanguageModel& model) {
  CheckpointStore store{fs::path(folder)};
  std::vector<int64_t> steps = store.CompleteSteps();
  if (steps.empty()) {
    Fail(ErrorCode::kCheckpointDamaged, "there is no complete checkpoint in '{}'", folder);
  }
  if (step < 0) step = steps.back();
  CheckpointReader reader = store.Open(step);
  ReadSavedState(reader.state(), step, reader.path());
  FillFrom(reader, ModelState(model));
  return step;
}

}  // namespace gt
