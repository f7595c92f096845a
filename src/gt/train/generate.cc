#include "gt/train/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/resources.h"
#include "gt/data/permutation.h"
#include "gt/models/hf_checkpoint.h"
#include "gt/storage/checkpoint_store.h"
#include "gt/tokenizer/utf8.h"
#include "gt/train/checkpoint.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

// Descending by logit; equal ones by id, so that the order never depends on the sort.
bool Likelier(const std::pair<int32_t, double>& a, const std::pair<int32_t, double>& b) {
  return a.second > b.second || (a.second == b.second && a.first < b.first);
}

std::vector<std::pair<int32_t, double>> CheckedLogits(std::span<const float> logits) {
  std::vector<std::pair<int32_t, double>> checked;
  checked.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    // Minus infinity is a token that can never be.
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
      Fail(ErrorCode::kBadPrompt,
           "the model's logit of token {} is {}: its weights are damaged, or the run diverged; use "
           "an earlier checkpoint",
           i, logits[i]);
    }
    checked.emplace_back(static_cast<int32_t>(i), static_cast<double>(logits[i]));
  }
  if (checked.empty()) Fail(ErrorCode::kBadPrompt, "the model gives no logits to choose from");
  return checked;
}

// Turns logits, the largest first or at least known, into chances that add up to 1.
std::vector<TokenChance> Softmax(const std::vector<std::pair<int32_t, double>>& logits,
                                 double temperature) {
  double largest = std::max_element(logits.begin(), logits.end(), [](auto& a, auto& b) {
                     return a.second < b.second;
                   })->second;
  std::vector<TokenChance> chances;
  chances.reserve(logits.size());
  double sum = 0.0;
  for (auto [token, logit] : logits) {
    // With all logits at minus infinity nothing is likelier than anything else.
    double weight = logit == largest ? 1.0 : std::exp((logit - largest) / temperature);
    chances.push_back({token, weight});
    sum += weight;
  }
  for (TokenChance& entry : chances) entry.chance /= sum;
  return chances;
}

// The likeliest that together reach `share`, at least one.
void KeepShare(std::vector<TokenChance>& chances, double share) {
  std::sort(chances.begin(), chances.end(), [](const TokenChance& a, const TokenChance& b) {
    return a.chance > b.chance || (a.chance == b.chance && a.token < b.token);
  });
  double kept = 0.0;
  size_t count = 0;
  while (count < chances.size() && kept < share) kept += chances[count++].chance;
  chances.resize(std::max<size_t>(count, 1));
  for (TokenChance& entry : chances) entry.chance /= kept;
}

bool HasFile(const fs::path& folder, const char* name) {
  std::error_code error;
  return fs::is_regular_file(folder / name, error);
}

// 10 for a folder called step-00000010.
std::optional<int64_t> StepOfFolder(const fs::path& folder) {
  constexpr std::string_view kPrefix = "step-";
  std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || rest != end || step < 0) return std::nullopt;
  return step;
}

bool HasCheckpoints(const fs::path& folder) {
  return !CheckpointStore(folder).CompleteSteps().empty();
}

ModelSource FromHf(const fs::path& folder, int64_t step) {
  if (step >= 0) {
    Fail(ErrorCode::kConflictingOptions,
         "--step {} asks for a checkpoint, but '{}' is a Hugging Face folder, which has one set of "
         "weights; name the folder of the run with --model",
         step, folder.string());
  }
  return {.hf_folder = folder.string(), .checkpoints = ""};
}

// The config.toml of a run stands in its dump folder, which is the folder of the checkpoints or the
// one above it.
ModelSource FromCheckpoints(const fs::path& checkpoints, int64_t step) {
  for (const fs::path& folder : {checkpoints, checkpoints.parent_path()}) {
    if (!HasFile(folder, "config.toml")) continue;
    ModelSource source{.hf_folder = "", .checkpoints = checkpoints.string(), .step = step};
    LoadTomlFile((folder / "config.toml").string(), &source.config);
    return source;
  }
  Fail(ErrorCode::kUnknownModel,
       "'{}' has checkpoints, but there is no config.toml in it or above it that says which model "
       "they are of; copy the one of the run there",
       checkpoints.string());
}

// Checkpoints that the run kept, else the weights that it exported.
ModelSource FromRun(const fs::path& folder, int64_t step) {
  ModelSource source{.hf_folder = "", .checkpoints = "", .step = step};
  LoadTomlFile((folder / "config.toml").string(), &source.config);
  fs::path checkpoints = folder / source.config.checkpoint.folder;
  if (HasCheckpoints(checkpoints)) {
    source.checkpoints = checkpoints.string();
    return source;
  }
  if (step < 0 && HasFile(folder / "hf", "config.json")) return FromHf(folder / "hf", step);
  Fail(ErrorCode::kUnknownModel,
       "the run in '{}' has no complete checkpoint in '{}'{}; train with --checkpoint.enable",
       folder.string(), checkpoints.string(), step < 0 ? " and exported no weights" : "");
}

// gt train with --model.tokenizer_path bytes exports a folder without tokenizer.json, and its
// config.toml, one folder up, is what says so.
std::optional<Config> ConfigOfExport(const fs::path& hf_folder) {
  fs::path run = hf_folder.parent_path();
  if (hf_folder.filename() != "hf" || !HasFile(run, "config.toml")) return std::nullopt;
  Config config;
  LoadTomlFile((run / "config.toml").string(), &config);
  return config;
}

TextCodec ShippedCodec(const fs::path& hf_folder) {
  TextCodec codec{ResourcePath("data/tokenizer").string()};
  int64_t vocab = HfConfig::FromFile((hf_folder / "config.json").string()).Int("vocab_size");
  if (vocab == codec.vocab_size()) return codec;
  Fail(ErrorCode::kBadTokenizer,
       "there is no tokenizer.json in '{}', and the tokenizer that ships with gt has {} tokens "
       "where the model has {}; copy the model's tokenizer.json there, or name one with "
       "--tokenizer",
       hf_folder.string(), codec.vocab_size(), vocab);
}

ModelPtr Build(const ModelSource& source, int64_t length) {
  if (!source.hf_folder.empty()) return BuildModelFromHf(source.hf_folder, {.max_length = length});
  Config config = source.config;
  config.training.seq_len = length;
  // Weights are converted once, when they are there, and not in every step.
  config.training.mixed_precision_param = config.training.dtype;
  config.debug.moe_force_load_balance = false;
  config.debug.moe_load = "router";
  return BuildConfiguredModel(config);
}

ModelPtr BuildForLength(const ModelSource& source, int64_t prompt_tokens, int64_t new_tokens) {
  int64_t length = prompt_tokens + new_tokens;
  try {
    return Build(source, length);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kSequenceTooLong) throw;
  }
  nlohmann::json limit = Build(source, 1)->HfConfigJson()["max_position_embeddings"];
  Fail(
      ErrorCode::kBadPrompt,
      "the prompt has {} tokens, and with --max_new_tokens {} the text may reach {}, but the model "
      "was made for at most {}; shorten the prompt or ask for fewer tokens",
      prompt_tokens, new_tokens, length, limit.dump());
}

void CheckPrompt(std::span<const int32_t> prompt, int64_t vocab) {
  if (prompt.empty()) Fail(ErrorCode::kBadPrompt, "the prompt has no tokens");
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

// Logits of what follows the last token, as float32 on the CPU.
at::Tensor LastLogits(LanguageModel& model, const std::vector<int64_t>& tokens) {
  at::Tensor weight = model.HeadWeight();
  at::Tensor row = at::tensor(tokens, at::kLong).unsqueeze(0);
  at::Tensor positions = at::arange(row.size(1), at::kLong).unsqueeze(0);
  at::Tensor hidden = model.Hidden({row.to(weight.device()), positions.to(weight.device())});
  at::Tensor last = hidden.select(1, row.size(1) - 1);
  return at::linear(last, weight).squeeze(0).to(at::kFloat).to(at::kCPU).contiguous();
}

}  // namespace

std::vector<TokenChance> NextTokenChances(std::span<const float> logits,
                                          const SamplingOptions& options) {
  std::vector<std::pair<int32_t, double>> candidates = CheckedLogits(logits);
  if (options.temperature == 0.0) {
    return {{std::min_element(candidates.begin(), candidates.end(), Likelier)->first, 1.0}};
  }
  auto kept = static_cast<size_t>(options.top_k);
  if (kept > 0 && kept < candidates.size()) {
    auto end = candidates.begin() + options.top_k;
    std::nth_element(candidates.begin(), end, candidates.end(), Likelier);
    candidates.resize(kept);
    // nth_element leaves an order of its own; the draw must not depend on it.
    std::sort(candidates.begin(), candidates.end(), Likelier);
  }
  std::vector<TokenChance> chances = Softmax(candidates, options.temperature);
  if (options.top_p < 1.0) KeepShare(chances, options.top_p);
  return chances;
}

Sampler::Sampler(const SamplingOptions& options, int64_t seed, int64_t sample)
    : options_(options),
      stream_(CombineSeeds(static_cast<uint64_t>(seed), static_cast<uint64_t>(sample))) {}

double Sampler::NextUniform() {
  constexpr uint64_t kGamma = 0x9e3779b97f4a7c15;  // the stride of splitmix64
  return static_cast<double>(MixBits(stream_ + kGamma * drawn_++) >> 11) * 0x1p-53;
}

int32_t Sampler::Next(std::span<const float> logits) {
  std::vector<TokenChance> chances = NextTokenChances(logits, options_);
  double target = NextUniform(), passed = 0.0;
  for (const TokenChance& entry : chances) {
    passed += entry.chance;
    if (target < passed) return entry.token;
  }
  // Rounding left the sum a little below 1. Of what is there, take one that can be.
  auto possible = std::find_if(chances.rbegin(), chances.rend(),
                               [](const TokenChance& entry) { return entry.chance > 0.0; });
  return possible->token;
}

TextStream::TextStream(const TextCodec& codec, std::span<const int32_t> prompt) {
  if (codec.tokenizer() == nullptr) return;
  decoder_.emplace(*codec.tokenizer());
  for (int32_t token : prompt) decoder_->Push(token);
}

std::string TextStream::Push(int32_t token) {
  if (decoder_) return decoder_->Push(token);
  // A model may have more tokens than there are bytes; the others have no text.
  return token >= 0 && token < 256 ? PushByte(static_cast<char>(token)) : "";
}

std::string TextStream::PushByte(char byte) {
  std::string out;
  std::string longer = bytes_ + byte;
  // What is cut short counts as one broken character; anything else that is not valid is a byte
  // that cannot stand here, and ends what came before it.
  if (!bytes_.empty() && !IsValidUtf8(longer) && ToValidUtf8(longer) != kReplacementUtf8) {
    out = Finish();
    longer = byte;
  }
  bytes_ = longer;
  bool whole = IsValidUtf8(bytes_), hopeless = !whole && Utf8Length(bytes_[0]) == 1;
  return whole || hopeless ? out + Finish() : out;
}

std::string TextStream::Finish() {
  if (decoder_) return decoder_->Finish();
  return ToValidUtf8(std::exchange(bytes_, ""));
}

ModelSource FindModel(const std::string& folder, int64_t step) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    Fail(ErrorCode::kUnknownModel,
         "there is no folder '{}'; name a Hugging Face folder or the dump folder of a run with "
         "--model (gt train leaves its weights in outputs/hf)",
         folder);
  }
  // Without "." and a slash at the end, so that names and parents are what they seem.
  fs::path path = fs::canonical(folder);
  if (HasFile(path, "config.json")) return FromHf(path, step);
  if (std::optional<int64_t> own = StepOfFolder(path); own && HasFile(path, "manifest.json")) {
    if (step >= 0 && step != *own) {
      Fail(ErrorCode::kConflictingOptions, "--step {} contradicts --model '{}', which is step {}",
           step, folder, *own);
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

TextCodec CodecOf(const ModelSource& source, const std::string& tokenizer) {
  if (!tokenizer.empty()) return TextCodec(tokenizer);
  if (source.hf_folder.empty()) return TextCodec(source.config);
  if (HasFile(source.hf_folder, "tokenizer.json")) return TextCodec(source.hf_folder);
  if (std::optional<Config> run = ConfigOfExport(source.hf_folder)) return TextCodec(*run);
  return ShippedCodec(source.hf_folder);
}

std::vector<int32_t> EncodePrompt(const TextCodec& codec, std::string_view prompt) {
  std::vector<int32_t> tokens;
  if (!prompt.empty()) {
    if (codec.tokenizer() != nullptr) {
      return codec.tokenizer()->Encode(prompt, /*add_special_tokens=*/true);
    }
    codec.Encode(prompt, tokens);
    return tokens;
  }
  if (std::optional<int32_t> first = codec.bos_id() ? codec.bos_id() : codec.eos_id()) {
    return {*first};
  }
  codec.Encode("\n", tokens);
  return tokens;
}

ModelPtr LoadForGeneration(const ModelSource& source, std::span<const int32_t> prompt,
                           int64_t new_tokens, at::Device device) {
  ModelPtr model = BuildForLength(source, static_cast<int64_t>(prompt.size()), new_tokens);
  CheckPrompt(prompt, model->vocab_size());
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

std::vector<int32_t> Generate(LanguageModel& model, std::span<const int32_t> prompt,
                              const GenerateOptions& options, Sampler& sampler,
                              const std::function<void(int32_t)>& on_token) {
  CheckPrompt(prompt, model.vocab_size());
  at::NoGradGuard no_gradients;
  std::vector<int64_t> tokens(prompt.begin(), prompt.end());
  std::vector<int32_t> made;
  while (static_cast<int64_t>(made.size()) < options.max_new_tokens) {
    at::Tensor logits = LastLogits(model, tokens);
    int32_t next = sampler.Next({logits.const_data_ptr<float>(), size_t(logits.numel())});
    if (options.stop_token && next == *options.stop_token) break;
    tokens.push_back(next);
    made.push_back(next);
    if (on_token) on_token(next);
  }
  return made;
}

}  // namespace gt
