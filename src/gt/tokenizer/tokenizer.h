// Turns text into token ids and back, as a Hugging Face tokenizer.json describes it, with exactly
// the ids of the `tokenizers` Python package.
//
// The stages follow the file: added tokens are cut out of the text, the rest is normalized, split
// into words (pre-tokenizer), and each word becomes tokens by byte pair encoding. Bytes that are
// not UTF-8 count as U+FFFD, one for each maximal invalid sequence, as Python's errors="replace"
// reads them. The `truncation` and `padding` of a file are about batches for inference and are
// ignored.
//
// A tokenizer never changes after it was read and is thread safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gt {

class Tokenizer {
 public:
  // `path` is a tokenizer.json or a folder that holds one. The ids of the begin and the end of a
  // text come from tokenizer_config.json, special_tokens_map.json, generation_config.json or
  // config.json beside it, whichever names them first. Errors: BadTokenizer.
  static Tokenizer FromFile(const std::filesystem::path& path);

  // From the text of a tokenizer.json alone; `name` stands for the file in errors.
  static Tokenizer FromJson(std::string_view json, std::string_view name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // With special tokens, the post-processor of the file adds what a model expects around one text,
  // such as <s> before it.
  std::vector<int32_t> Encode(std::string_view text, bool add_special_tokens = false) const;

  // Appends to `ids`, so that a caller with many texts reuses one buffer.
  void Encode(std::string_view text, std::vector<int32_t>& ids,
              bool add_special_tokens = false) const;

  // Ids that the vocabulary does not have decode to nothing.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // The largest id plus one, added tokens included: how many rows an embedding needs at least.
  int64_t vocab_size() const;

  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;

  // Tokens as the file spells them: " the" of a byte-level vocabulary is "Ġthe".
  std::optional<int32_t> TokenToId(std::string_view token) const;
  std::optional<std::string> IdToToken(int32_t id) const;

  // Whether decoding leaves the token out unless asked not to.
  bool IsSpecial(int32_t id) const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

// Decodes ids as they are generated. Each call gives the text that is certain by then: a character
// whose bytes are spread over several tokens comes out with the last of them, never as broken
// UTF-8. All pieces together are what Decode gives for all ids; they differ only where byte tokens
// that already made whole characters are followed by bytes that never do.
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);

  std::string Push(int32_t id);

  // What is left at the end: U+FFFD for bytes that no token completed.
  std::string Finish();

 private:
  std::string FreshPart(const std::string& text) const;
  void MoveContext();

  // Ids whose text is out are decoded again with what follows, because decoders treat the first
  // token of a text differently; a few of them are enough for that.
  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> window_;
  std::size_t context_ = 0;  // how many ids of the window are out completely
  std::string shown_;        // what of the window's text is out
};

}  // namespace gt
