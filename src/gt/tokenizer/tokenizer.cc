#include "gt/tokenizer/tokenizer.h"

#include <array>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/utf8.h"
#include "gt/tokenizer/added_tokens.h"
#include "gt/tokenizer/bpe.h"
#include "gt/tokenizer/decoder.h"
#include "gt/tokenizer/json_part.h"
#include "gt/tokenizer/normalizer.h"
#include "gt/tokenizer/post_processor.h"
#include "gt/tokenizer/pre_tokenizer.h"

namespace gt {
namespace {

// Everything that encoding and decoding write to. A call takes one and gives it back, so that
// threads do not share any and caches stay warm.
struct Scratch {
  RegexScratch regex;
  NormalizerScratch normalizer;
  PreTokenizer::Scratch pre_tokenizer;
  BpeScratch bpe;
  std::vector<AddedTokens::Stretch> stretches, normalized_stretches;
};

class ScratchPool {
 public:
  std::unique_ptr<Scratch> Take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(free_.back());
        free_.pop_back();
        return scratch;
      }
    }
    return std::make_unique<Scratch>();
  }

  void GiveBack(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

class Borrowed {
 public:
  explicit Borrowed(ScratchPool& pool) : pool_(pool), scratch_(pool.Take()) {}
  ~Borrowed() { pool_.GiveBack(std::move(scratch_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  Scratch& operator*() const { return *scratch_; }

 private:
  ScratchPool& pool_;
  std::unique_ptr<Scratch> scratch_;
};

// A part that may be missing from the file is read as null.
JsonPart PartOrNull(const JsonPart& file, std::string_view key) {
  static const nlohmann::json null;
  return file.Has(key) ? file.At(key) : JsonPart(null, file.file(), std::string(key));
}

}  // namespace

struct Tokenizer::Parts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;
  std::optional<int32_t> bos, eos;
  mutable ScratchPool pool;

  explicit Parts(const JsonPart& file)
      : normalizer(Normalizer::FromJson(PartOrNull(file, "normalizer"))),
        pre_tokenizer(PreTokenizer::FromJson(PartOrNull(file, "pre_tokenizer"))),
        model(BpeModel::FromJson(file.At("model"), pre_tokenizer.gives_bytes())),
        post_processor(PostProcessor::FromJson(PartOrNull(file, "post_processor"))),
        decoder(Decoder::FromJson(PartOrNull(file, "decoder"))) {
    if (file.Has("added_tokens")) {
      added = AddedTokens(file.At("added_tokens"), model.vocabulary(), normalizer);
    }
  }

  std::optional<int32_t> Find(std::string_view token) const {
    if (const AddedToken* found = added.Find(token)) return found->id;
    return model.vocabulary().Find(token);
  }

  // Null where there is none. Added tokens decode as they are in normalized text, because
  // decoders undo what normalizers do.
  const std::string* TokenOf(int32_t id) const {
    if (const AddedToken* token = added.Find(id)) return &token->normalized_content;
    return model.vocabulary().TokenOf(id);
  }

  int64_t id_limit() const { return std::max(model.vocabulary().id_limit(), added.id_limit()); }

  void Encode(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;
  void EncodeNormalized(Piece piece, Scratch& scratch, std::vector<int32_t>& ids) const;
  void ReadSpecialIds(const std::filesystem::path& folder);
};

// Text between added tokens is normalized stretch by stretch: a normalizer that prepends something
// does so after each of them.
void Tokenizer::Parts::Encode(std::string_view text, Scratch& scratch,
                              std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  const Piece whole = {text, Utf8Length(text[0])};
  scratch.stretches.clear();
  added.Cut(text, /*normalized=*/false, scratch.regex, scratch.stretches);
  for (const AddedTokens::Stretch& stretch : scratch.stretches) {
    if (stretch.token != nullptr) {
      ids.push_back(stretch.token->id);
      continue;
    }
    const Piece piece = whole.Slice(stretch.begin, stretch.end);
    EncodeNormalized(normalizer.Apply(piece, scratch.normalizer, scratch.regex), scratch, ids);
  }
}

void Tokenizer::Parts::EncodeNormalized(Piece piece, Scratch& scratch,
                                        std::vector<int32_t>& ids) const {
  struct Words final : WordSink {
    Words(const BpeModel& m, BpeScratch& s, std::vector<int32_t>& i)
        : model(m), scratch(s), ids(i) {}
    void Add(std::string_view word) override { model.Encode(word, scratch, ids); }
    const BpeModel& model;
    BpeScratch& scratch;
    std::vector<int32_t>& ids;
  } words(model, scratch.bpe, ids);

  scratch.normalized_stretches.clear();
  added.Cut(piece.text, /*normalized=*/true, scratch.regex, scratch.normalized_stretches);
  for (const AddedTokens::Stretch& stretch : scratch.normalized_stretches) {
    if (stretch.token != nullptr) {
      ids.push_back(stretch.token->id);
    } else {
      pre_tokenizer.Run(piece.Slice(stretch.begin, stretch.end), scratch.pre_tokenizer,
                        scratch.regex, words);
    }
  }
}

// Later files are asked only for what the earlier ones do not say. Tokens that the vocabulary does
// not have are passed over: such files are copied from model to model.
void Tokenizer::Parts::ReadSpecialIds(const std::filesystem::path& folder) {
  constexpr std::array<const char*, 4> kFiles = {"tokenizer_config.json", "special_tokens_map.json",
                                                 "generation_config.json", "config.json"};
  for (const char* name : kFiles) {
    const std::filesystem::path path = folder / name;
    std::error_code ignored;
    if ((bos && eos) || !std::filesystem::is_regular_file(path, ignored)) continue;
    const nlohmann::json json = ParseTokenizerJson(ReadTokenizerFile(path), path.string());
    const JsonPart file(json, path.string());
    const auto read = [&](std::string_view kind) -> std::optional<int32_t> {
      const std::string token_key = fmt::format("{}_token", kind);
      if (file.Has(token_key)) {
        const JsonPart token = file.At(token_key);
        return Find(token.value().is_object() ? token.String("content") : token.AsString());
      }
      const std::string id_key = fmt::format("{}_token_id", kind);
      if (!file.Has(id_key)) return std::nullopt;
      const nlohmann::json& value = json[id_key];  // a number, or several of which the first counts
      const nlohmann::json& id = value.is_array() && !value.empty() ? value[0] : value;
      const bool known = id.is_number_unsigned() && id.get<uint64_t>() <= kLargestTokenId &&
                         TokenOf(id.get<int32_t>()) != nullptr;
      return known ? std::optional(id.get<int32_t>()) : std::nullopt;
    };
    if (!bos) bos = read("bos");
    if (!eos) eos = read("eos");
  }
}

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::FromJson(std::string_view json, std::string_view name) {
  const nlohmann::json value = ParseTokenizerJson(json, name);
  const JsonPart file(value, std::string(name));
  if (!value.is_object()) file.Refuse("a tokenizer.json must hold an object");
  if (file.Has("version") && file.String("version") != "1.0") {
    file.At("version").Refuse("gt knows version 1.0, not {}", file.String("version"));
  }
  try {
    return Tokenizer(std::make_unique<Parts>(file));
  } catch (const Error& error) {
    // Errors of patterns and of missing libraries do not know the file.
    if (error.message().starts_with(name)) throw;
    file.Refuse("{}", error.message());
  }
}

Tokenizer Tokenizer::FromFile(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  const std::filesystem::path file = is_folder ? path / "tokenizer.json" : path;
  if (!std::filesystem::exists(file, ignored)) {
    Fail(ErrorCode::kBadTokenizer,
         "{} does not exist; give a tokenizer.json of Hugging Face or a folder that holds one",
         file.string());
  }
  Tokenizer tokenizer = FromJson(ReadTokenizerFile(file.string()), file.string());
  tokenizer.parts_->ReadSpecialIds(file.parent_path());
  return tokenizer;
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  std::vector<int32_t> ids;
  Encode(text, ids, add_special_tokens);
  return ids;
}

void Tokenizer::Encode(std::string_view text, std::vector<int32_t>& ids,
                       bool add_special_tokens) const {
  constexpr std::size_t kLongestText = std::size_t{1} << 30;  // places are kept in 32 bits
  if (text.size() > kLongestText) {
    Fail(ErrorCode::kBadData, "a text of {} bytes is too long to be encoded at once; at most {}",
         text.size(), kLongestText);
  }
  const PostProcessor& around = parts_->post_processor;
  if (add_special_tokens) ids.insert(ids.end(), around.before.begin(), around.before.end());
  {
    const Borrowed scratch(parts_->pool);
    if (IsValidUtf8(text)) {
      parts_->Encode(text, *scratch, ids);
    } else {
      parts_->Encode(ToValidUtf8(text), *scratch, ids);
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), around.after.begin(), around.after.end());
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const std::string* token = parts_->TokenOf(id);
    if (token == nullptr || (skip_special_tokens && parts_->added.IsSpecial(*token))) continue;
    tokens.push_back(*token);
  }
  const Borrowed scratch(parts_->pool);
  return parts_->decoder.Decode(std::move(tokens), (*scratch).regex);
}

int64_t Tokenizer::vocab_size() const { return parts_->id_limit(); }
std::optional<int32_t> Tokenizer::bos_id() const { return parts_->bos; }
std::optional<int32_t> Tokenizer::eos_id() const { return parts_->eos; }

std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  return parts_->Find(token);
}

std::optional<std::string> Tokenizer::IdToToken(int32_t id) const {
  const std::string* token = parts_->TokenOf(id);
  return token == nullptr ? std::nullopt : std::optional(*token);
}

bool Tokenizer::IsSpecial(int32_t id) const {
  const std::string* token = parts_->TokenOf(id);
  return token != nullptr && parts_->added.IsSpecial(*token);
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string StreamDecoder::Push(int32_t id) {
  if (skip_special_tokens_ && tokenizer_->IsSpecial(id)) return "";
  window_.push_back(id);
  std::string text = tokenizer_->Decode(window_, skip_special_tokens_);
  // U+FFFD at the end may be the beginning of a character.
  std::string_view certain = text;
  while (certain.ends_with(kReplacementUtf8)) certain.remove_suffix(kReplacementUtf8.size());
  const bool complete = certain.size() == text.size();
  if (!complete && !certain.starts_with(shown_)) return "";
  std::string fresh = FreshPart(complete ? text : std::string(certain));
  if (complete) {
    MoveContext();
  } else {
    shown_ = certain;
  }
  return fresh;
}

std::string StreamDecoder::Finish() {
  std::string rest = FreshPart(tokenizer_->Decode(window_, skip_special_tokens_));
  window_.clear();
  context_ = 0;
  shown_.clear();
  return rest;
}

// What of the window's text has not been returned yet. Where returned characters were taken back by
// bytes that follow them, only the ids after the context count.
std::string StreamDecoder::FreshPart(const std::string& text) const {
  if (text.starts_with(shown_)) return text.substr(shown_.size());
  return tokenizer_->Decode(std::span(window_).subspan(context_), skip_special_tokens_);
}

// Everything is out: what came last becomes the context of what follows.
void StreamDecoder::MoveContext() {
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(context_));
  context_ = window_.size();
  shown_ = tokenizer_->Decode(window_, skip_special_tokens_);
}

}  // namespace gt
