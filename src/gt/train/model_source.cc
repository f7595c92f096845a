#include "gt/train/model_source.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/logging.h"
#include "gt/base/read_file.h"
#include "gt/compile/configured_model.h"
#include "gt/models/hf_checkpoint.h"
#include "gt/storage/best_checkpoint.h"
#include "gt/storage/checkpoint_store.h"
#include "gt/train/checkpoint.h"
#include "gt/train/tokenizer_export.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

bool HasFile(const fs::path& folder, const char* name) {
  std::error_code error;
  return fs::is_regular_file(folder / name, error);
}

constexpr int64_t kLatestStep = -1;

std::string StepText(int64_t step) { return step == kBestStep ? "best" : fmt::to_string(step); }

ModelSource FromHfFolder(const fs::path& folder, int64_t step) {
  if (step != kLatestStep) {
    Fail(ErrorCode::kConflictingOptions,
         "--step {} asks for a checkpoint, but '{}' is a Hugging Face folder, which has one set of "
         "weights; name the folder of the run with --model",
         StepText(step), folder.string());
  }
  return {.hf_folder = folder.string()};
}

// A checkpoint knows the configuration it was made with. A config.toml beside it may be of a later run.
Config ConfigOfCheckpoint(const fs::path& step_folder) {
  std::string path = (step_folder / "state.json").string();
  nlohmann::json state;
  try {
    state = ParseJson(ReadWholeFile(path, kLargeJson.bytes), kLargeJson);
  } catch (const BadJson& problem) {
    log::Debug("{}: {}", path, problem.what());
  } catch (const UnreadableFile& problem) {
    log::Debug("{}: {}", path, problem.what());
  }
  if (!state.is_object() || !state.contains("config") || !state["config"].is_string()) {
    Fail(ErrorCode::kCheckpointDamaged,
         "{} is missing or damaged: it should say which model the checkpoint is of; use another "
         "step (--step)",
         path);
  }
  Config config;
  LoadToml(state["config"].get<std::string>(), path, &config);
  return config;
}

int64_t BestStepOf(const fs::path& folder) {
  if (const std::optional<BestCheckpoint> best = ReadBest(folder)) return best->step;
  Fail(ErrorCode::kUnknownModel,
       "'{}' does not say which of its checkpoints is the best (--step best); train with "
       "--checkpoint.keep_best and validation",
       folder.string());
}

ModelSource FromCheckpoints(const fs::path& folder, int64_t step) {
  CheckpointStore store(folder);
  std::vector<int64_t> steps = store.CompleteSteps();
  if (step == kBestStep) step = BestStepOf(folder);
  if (step == kLatestStep) step = steps.back();
  if (std::find(steps.begin(), steps.end(), step) == steps.end()) {
    Fail(ErrorCode::kCheckpointDamaged,
         "'{}' has no complete checkpoint of step {} (--step); its steps are {}", folder.string(),
         step, fmt::join(steps, ", "));
  }
  return {.hf_folder = "",
          .checkpoints = folder.string(),
          .step = step,
          .config = ConfigOfCheckpoint(store.FolderOfStep(step))};
}

bool HasCheckpoints(const fs::path& folder) {
  return !CheckpointStore(folder).CompleteSteps().empty();
}

// Whether the export is of a later run than the checkpoints. A run that keeps checkpoints saves its last
// one just before it exports the same weights; one that does not leaves those of earlier runs alone.
bool ExportIsOfLaterRun(const fs::path& exported, const fs::path& checkpoints,
                        const Config& latest) {
  if (latest.checkpoint.enable) return false;
  CheckpointStore store(checkpoints);
  fs::path newest = store.FolderOfStep(store.CompleteSteps().back());
  std::error_code error;
  return fs::last_write_time(exported / "config.json", error) > fs::last_write_time(newest, error);
}

ModelSource FromRun(const fs::path& folder, int64_t step) {
  Config config;
  LoadTomlFile((folder / "config.toml").string(), &config);
  fs::path checkpoints = folder / config.checkpoint.folder, exported = folder / "hf";
  bool has_export = step == kLatestStep && HasFile(exported, "config.json");
  if (HasCheckpoints(checkpoints) &&
      !(has_export && ExportIsOfLaterRun(exported, checkpoints, config))) {
    return FromCheckpoints(checkpoints, step);
  }
  if (has_export) return FromHfFolder(exported, step);
  Fail(ErrorCode::kUnknownModel,
       "the run in '{}' has no complete checkpoint in '{}'{}; train with --checkpoint.enable",
       folder.string(), checkpoints.string(),
       step == kLatestStep ? " and exported no weights" : "");
}

// The step of a folder that is a checkpoint itself.
std::optional<int64_t> OwnStep(const fs::path& folder) {
  CheckpointStore store(folder.parent_path());
  for (int64_t step : store.CompleteSteps()) {
    if (store.FolderOfStep(step) == folder) return step;
  }
  return std::nullopt;
}

ModelPtr BuildFrom(const ModelSource& source, int64_t length) {
  if (!source.hf_folder.empty()) return BuildModelFromHf(source.hf_folder, {.max_length = length});
  Config config = source.config;
  config.training.seq_len = length;
  // Weights are converted once, when they are loaded, and not in every pass: auto on no GPU.
  config.training.mixed_precision_param = ComputeDtype::kAuto;
  config.device = DeviceChoice::kCpu;
  config.debug.moe_force_load_balance = false;
  config.debug.moe_load = "router";
  std::error_code error;
  if (!config.model.hf_path.empty() && !fs::is_directory(config.model.hf_path, error)) {
    Fail(ErrorCode::kUnknownModel,
         "{} is of a model whose architecture was read from '{}' (--model.hf_path), which is not "
         "there; call gt generate from the folder in which gt train was called",
         TitleOf(source), config.model.hf_path);
  }
  return BuildConfiguredModel(config);
}

ModelPtr BuildForLength(const ModelSource& source, int64_t prompt_tokens, int64_t new_tokens) {
  int64_t length = prompt_tokens + new_tokens;
  try {
    return BuildFrom(source, length);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kSequenceTooLong) throw;
  }
  nlohmann::json limit = BuildFrom(source, 1)->HfConfigJson()["max_position_embeddings"];
  Fail(
      ErrorCode::kBadPrompt,
      "the prompt has {} tokens, and with --max_new_tokens {} the text may reach {}, but the model "
      "was made for at most {}; shorten the prompt or ask for fewer tokens",
      prompt_tokens, new_tokens, length, limit.dump());
}

void RequireKnownTokens(std::span<const int32_t> prompt, int64_t vocab) {
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < vocab) continue;
    Fail(ErrorCode::kTokenOutOfVocabulary,
         "token {} of the prompt is {}, but the model has {} tokens; use the tokenizer that the "
         "model was made with (--tokenizer)",
         i, prompt[i], vocab);
  }
}

// The tensors keep their identity: modules hold them as well.
void ConvertParameters(LanguageModel& model, at::ScalarType dtype) {
  at::NoGradGuard no_gradients;
  for (at::Tensor& parameter : model.parameters()) parameter.set_data(parameter.to(dtype));
}

}  // namespace

ModelSource FindModel(const std::string& folder, int64_t step) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    Fail(ErrorCode::kUnknownModel,
         "{} '{}'; name a Hugging Face folder or the dump folder of a run with --model (gt train "
         "leaves its weights in outputs/latest/hf)",
         fs::exists(folder, error) ? "there is a file, but no folder" : "there is no folder",
         folder);
  }
  // Without "." and a slash at the end, so that names and parents are what they seem.
  fs::path path = fs::canonical(folder);
  if (HasFile(path, "config.json")) return FromHfFolder(path, step);
  if (std::optional<int64_t> own = OwnStep(path)) {
    if (step != kLatestStep && step != *own) {
      Fail(ErrorCode::kConflictingOptions, "--step {} contradicts --model '{}', which is step {}",
           StepText(step), folder, *own);
    }
    return FromCheckpoints(path.parent_path(), *own);
  }
  if (HasCheckpoints(path)) return FromCheckpoints(path, step);
  if (HasFile(path, "config.toml")) return FromRun(path, step);
  Fail(ErrorCode::kUnknownModel,
       "'{}' holds no model: neither a config.json (a Hugging Face folder), nor a config.toml (the "
       "dump folder of a run), nor complete checkpoints (step-N)",
       folder);
}

std::string TitleOf(const ModelSource& source) {
  if (!source.hf_folder.empty()) return source.hf_folder;
  return fmt::format("step {} of {}", source.step, source.checkpoints);
}

TextCodec CodecOf(const ModelSource& source, const std::string& tokenizer) {
  if (!tokenizer.empty()) return TextCodec(tokenizer);
  if (source.hf_folder.empty()) return TextCodec(source.config);
  std::string own = ExportedTokenizer(source.hf_folder);
  if (!own.empty()) return TextCodec(own);
  Fail(ErrorCode::kBadTokenizer,
       "there is no tokenizer.json in '{}', nor does its config.json say that tokens are bytes; "
       "copy the model's tokenizer.json there, or name one with --tokenizer (bytes for none)",
       source.hf_folder);
}

ModelPtr LoadForGeneration(const ModelSource& source, std::span<const std::vector<int32_t>> prompts,
                           int64_t new_tokens, at::Device device) {
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  ModelPtr model = BuildForLength(source, static_cast<int64_t>(longest), new_tokens);
  for (const auto& prompt : prompts) RequireKnownTokens(prompt, model->vocab_size());
  at::ScalarType dtype = device.is_cuda() ? at::kBFloat16 : at::kFloat;
  if (!source.hf_folder.empty()) {
    nn::Allocate(*model, device, dtype);
    LoadHfWeights(*model, source.hf_folder);
  } else {
    // Checkpoints are read in the very dtype they were written in.
    nn::Allocate(*model, device, ToTorch(source.config.training.dtype));
    LoadModelFromCheckpoint(source.checkpoints, source.step, *model);
    ConvertParameters(*model, dtype);
  }
  model->eval();
  return model;
}

}  // namespace gt
