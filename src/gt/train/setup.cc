#include "gt/train/setup.h"

#include <filesystem>

#include "gt/base/error.h"
#include "gt/base/resources.h"
#include "gt/base/text.h"
#include "gt/models/hf_checkpoint.h"
#include "gt/nn/moe.h"
#include "gt/parallel/chunk_modules.h"
#include "gt/parallel/parallelize.h"
#include "gt/train/step.h"
#include "gt/train/tokenizer_export.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShippedTokenizer = "data/tokenizer";

std::string TokenizerPath(const Config& config) {
  if (!config.model.tokenizer_path.empty()) return config.model.tokenizer_path;
  if (!config.model.hf_path.empty()) {
    std::string own = ExportedTokenizer(config.model.hf_path);
    if (!own.empty()) return own;
  }
  return ResourcePath(kShippedTokenizer).string();
}

std::string DataPath(const Config& config) {
  if (!config.training.dataset_path.empty()) return config.training.dataset_path;
  if (config.training.dataset == "sample") return ResourcePath("data/sample.txt").string();
  std::vector<std::string> known = {"sample"};
  Fail(ErrorCode::kDataUnreadable,
       "there is no data set '{}'{}; use sample, or name a file or folder with "
       "--training.dataset_path",
       config.training.dataset, DidYouMean(config.training.dataset, known));
}

LoaderOptions OptionsFor(const Config& config, const LanguageModel& model, const TextCodec& codec,
                         const Mesh& mesh) {
  LoaderOptions options;
  options.rank = mesh.coordinate(MeshAxis::kBatch);
  options.world = mesh.size(MeshAxis::kBatch);
  options.rows = config.training.local_batch_size;
  options.length = config.training.seq_len;
  options.vocab_size = model.vocab_size();
  options.seed = static_cast<uint64_t>(config.training.seed);
  options.prefetch = config.training.prefetch;
  options.bos_id = codec.bos_id();
  options.eos_id = codec.eos_id();
  options.encode = [&codec](std::string_view text, std::vector<int32_t>& append) {
    codec.Encode(text, append);
  };
  return options;
}

}  // namespace

at::ScalarType ToTorch(TrainingDtype dtype) {
  return dtype == TrainingDtype::kBfloat16 ? at::kBFloat16 : at::kFloat;
}

at::ScalarType ToTorch(ExportDtype dtype) {
  switch (dtype) {
    case ExportDtype::kBfloat16:
      return at::kBFloat16;
    case ExportDtype::kFloat16:
      return at::kHalf;
    case ExportDtype::kFloat32:
      break;
  }
  return at::kFloat;
}

namespace {

std::vector<nn::Moe*> ModulesWithExperts(LanguageModel& model) {
  std::vector<nn::Moe*> found;
  for (nn::Module* module : nn::ModulesOf(model)) {
    if (auto* moe = dynamic_cast<nn::Moe*>(module)) found.push_back(moe);
  }
  return found;
}

void ForceLoads(LanguageModel& model, const MoeLoad& load) {
  if (load.kind != MoeLoad::Kind::kZipf && load.kind != MoeLoad::Kind::kFile) return;
  const ExpertWeights weights(load);
  for (nn::Moe* moe : ModulesWithExperts(model)) {
    moe->ForceLoad(weights.Of(moe->fqn().str(), moe->config().experts, moe->config().top_k));
  }
}

}  // namespace

ModelPtr BuildConfiguredModel(const Config& config) {
  ModelOptions options;
  options.max_length = config.training.seq_len;
  options.attention = {config.model.attn, config.model.attn_mask_type};
  options.layers = config.model.n_layers;
  options.vocab = config.model.vocab_size;
  options.load_balance = config.model.load_balance_coeff;
  const MoeLoad load = MoeLoadOf(config);
  options.force_balance = load.kind == MoeLoad::Kind::kBalanced;
  options.dropout = config.model.dropout;
  ModelPtr model = config.model.hf_path.empty()
                       ? BuildModel(config.model.name, config.model.flavor, options)
                       : BuildModelFromHf(config.model.hf_path, options);
  ForceLoads(*model, load);
  nn::StoreAs(*model, ToTorch(config.training.dtype));
  const TrainingDtype compute = ComputeDtypeOf(config);
  if (compute != config.training.dtype) CastParametersForCompute(*model, ToTorch(compute));
  return model;
}

ModelPtr BuildConfiguredModel(const Config& config, World& world, const Mesh& mesh) {
  ModelPtr model = BuildConfiguredModel(config);
  if (world.size() > 1 || config.debug.collectives_of_one) {
    Parallelize(*model, world, mesh, config, ToTorch(ComputeDtypeOf(config)));
  }
  const Config::Compile::EpOverlap& overlap = config.compile.ep_overlap;
  if (overlap.enabled == AutoSwitch::kTrue && overlap.strategy == ChunkStrategy::kEager)
    ChunkModules(*model, overlap);
  return model;
}

ExpectedRouting ConfiguredLoads(LanguageModel& model, const Config& config, const Mesh& mesh) {
  std::vector<ExpertModule> modules;
  for (const nn::Moe* moe : ModulesWithExperts(model)) {
    modules.push_back({moe->fqn().str(), moe->config().experts, moe->config().top_k});
  }
  const int64_t tokens = config.training.local_batch_size * config.training.seq_len /
                         (mesh.size(MeshAxis::kTp) * mesh.size(MeshAxis::kCp));
  return ExpectedLoads(MoeLoadOf(config), modules, mesh.size(MeshAxis::kEp),
                       mesh.coordinate(MeshAxis::kEp), tokens);
}

void InitializeModel(LanguageModel& model, const Config& config, at::Device device) {
  at::ScalarType dtype = ToTorch(config.training.dtype);
  if (config.model.hf_path.empty()) {
    nn::Materialize(model, device, config.training.seed, dtype);
  } else {
    nn::Allocate(model, device, dtype);
    LoadHfWeights(model, config.model.hf_path);
  }
}

std::string ModelTitle(const Config& config) {
  if (!config.model.hf_path.empty()) return config.model.hf_path;
  return config.model.name + " " + config.model.flavor;
}

bool SettleTokenizer(Config* config, int64_t vocab_size) {
  if (!config->model.tokenizer_path.empty()) return false;
  const std::string path = TokenizerPath(*config);
  const bool shipped = path == ResourcePath(kShippedTokenizer).string();
  if (!shipped || TextCodec(path).vocab_size() <= vocab_size) return false;
  config->model.tokenizer_path = TextCodec::kBytes;
  return true;
}

TextCodec::TextCodec(const Config& config) : TextCodec(TokenizerPath(config)) {}

TextCodec::TextCodec(const std::string& path) : path_(path) {
  if (path != kBytes) tokenizer_ = Tokenizer::FromFile(path);
}

void TextCodec::Encode(std::string_view text, std::vector<int32_t>& append) const {
  if (tokenizer_) return tokenizer_->Encode(text, append);
  for (char c : text) append.push_back(static_cast<uint8_t>(c));
}

std::optional<int32_t> TextCodec::bos_id() const {
  return tokenizer_ ? tokenizer_->bos_id() : std::nullopt;
}

std::optional<int32_t> TextCodec::eos_id() const {
  return tokenizer_ ? tokenizer_->eos_id() : std::nullopt;
}

std::unique_ptr<Loader> MakeTrainingData(const Config& config, const LanguageModel& model,
                                         const TextCodec& codec, const Mesh& mesh) {
  LoaderOptions options = OptionsFor(config, model, codec, mesh);
  options.path = DataPath(config);
  switch (config.training.shuffle) {
    case AutoSwitch::kAuto:
      options.shuffle = LoaderShuffle::kAuto;
      break;
    case AutoSwitch::kTrue:
      options.shuffle = LoaderShuffle::kOn;
      break;
    case AutoSwitch::kFalse:
      options.shuffle = LoaderShuffle::kOff;
      break;
  }
  return std::make_unique<Loader>(std::move(options));
}

std::unique_ptr<Loader> MakeValidationData(const Config& config, const LanguageModel& model,
                                           const TextCodec& codec, const Mesh& mesh) {
  LoaderOptions options = OptionsFor(config, model, codec, mesh);
  options.path = config.validation.dataset_path;
  options.shuffle = LoaderShuffle::kOff;
  options.prefetch = 0;
  return std::make_unique<Loader>(std::move(options));
}

}  // namespace gt
