#include "gt/train/job_data.h"

#include <filesystem>

#include "gt/base/error.h"
#include "gt/base/resources.h"
#include "gt/base/text.h"
#include "gt/job/config.h"
#include "gt/job/derived_options.h"
#include "gt/train/tokenizer_export.h"

namespace gt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShippedTokenizer = "data/tokenizer";

}  // namespace

std::string TokenizerPath(const Config& config) {
  if (!config.model.tokenizer_path.empty()) return config.model.tokenizer_path;
  if (!config.model.hf_path.empty()) {
    std::string own = ExportedTokenizer(config.model.hf_path);
    if (!own.empty()) return own;
  }
  return ResourcePath(kShippedTokenizer).string();
}

StringList DataPaths(const Config& config) {
  if (!config.training.dataset_path.empty()) return config.training.dataset_path;
  if (config.training.dataset == "sample") return {ResourcePath("data/sample.txt").string()};
  std::vector<std::string> known = {"sample"};
  Fail(ErrorCode::kDataUnreadable,
       "there is no data set '{}'{}; use sample, or name files or folders with "
       "--training.dataset_path",
       config.training.dataset, DidYouMean(config.training.dataset, known));
}

namespace {

LoaderOptions OptionsFor(const Config& config, const LanguageModel& model, const TextCodec& codec,
                         const JobShare& share) {
  LoaderOptions options;
  options.text_field = config.training.text_field;
  options.split.held_out = config.validation.split;
  options.world = static_cast<int64_t>(share.savers().size());
  options.rows = config.training.local_batch_size;
  options.length = config.training.seq_len;
  options.vocab_size = model.vocab_size();
  options.seed = static_cast<uint64_t>(config.training.seed);
  options.prefetch = config.training.prefetch;
  options.bos_id = codec.bos_id();
  options.eos_id = codec.eos_id();
  // A model of bytes may be for text that never contains some of them.
  if (codec.tokenizer() != nullptr) options.tokenizer_size = codec.ordinary_size();
  options.encode = [&codec](std::string_view text, std::vector<int32_t>& append) {
    codec.Encode(text, append);
  };
  return options;
}

std::unique_ptr<BatchReader> ReaderOf(const JobShare& share, LoaderOptions options) {
  return std::make_unique<BatchReader>(share.readers(), [&options](int64_t reader) {
    options.rank = reader;
    return std::make_unique<Loader>(options);
  });
}

}  // namespace

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

int64_t TextCodec::ordinary_size() const {
  int64_t size = vocab_size();
  const auto is_ordinary = [this](int64_t id) {
    const auto token = static_cast<int32_t>(id);
    return tokenizer_->IdToToken(token) && !tokenizer_->IsSpecial(token);
  };
  while (tokenizer_ && size > 0 && !is_ordinary(size - 1)) --size;
  return size;
}

std::unique_ptr<BatchReader> MakeTrainingData(const Config& config, const LanguageModel& model,
                                              const TextCodec& codec, const JobShare& share,
                                              DataContents contents) {
  LoaderOptions options = OptionsFor(config, model, codec, share);
  options.paths = DataPaths(config);
  options.contents = std::move(contents);
  options.accepts_other_contents = config.checkpoint.accept_changed_data;
  if (config.validation.split > 0) options.split.part = DataPart::kTraining;
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
  return ReaderOf(share, std::move(options));
}

std::unique_ptr<BatchReader> MakeValidationData(const Config& config, const LanguageModel& model,
                                                const TextCodec& codec, const JobShare& share) {
  if (!Validates(config)) return nullptr;
  LoaderOptions options = OptionsFor(config, model, codec, share);
  options.paths = config.validation.dataset_path;
  if (config.validation.split > 0) {
    options.paths = DataPaths(config);
    options.split.part = DataPart::kHeldOut;
  }
  options.shuffle = LoaderShuffle::kOff;
  options.prefetch = 0;
  return ReaderOf(share, std::move(options));
}

}  // namespace gt
