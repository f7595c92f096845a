// Text from a model: prompts become tokens, tokens become text as they appear. The prompts of a batch
// run through the model in one pass, then one token of each text at a time; what attention needs of
// earlier tokens is kept (nn/key_value_cache.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/generate/sampler.h"
#include "gt/models/model.h"
#include "gt/train/job_data.h"

namespace gt {

// Text of tokens as they are generated, never a part of a character.
class TextStream {
 public:
  // `codec` must outlive the stream. The prompt's tokens are context: their text is not returned.
  TextStream(const TextCodec& codec, std::span<const int32_t> prompt);
  std::string Push(int32_t token);
  std::string Finish();  // what is left: U+FFFD for bytes that no token completed

 private:
  std::string PushByte(char byte);

  std::optional<StreamDecoder> decoder_;
  std::string bytes_;  // of a character that is not complete yet, when tokens are bytes
};

// The prompt as the model saw beginnings of documents: with what the tokenizer puts in front. An
// empty prompt becomes the token that begins a text.
std::vector<int32_t> EncodePrompt(const TextCodec& codec, std::string_view prompt);

struct GenerateOptions {
  int64_t max_new_tokens = 200;
  std::optional<int32_t> stop_token = {};  // a text ends before it
};

// One text to generate.
struct TextRequest {
  std::vector<int32_t> prompt;
  Sampler sampler;
};

// Receives each token of text `request` as soon as it is known, and nothing once, when the text ends.
using TokenSink = std::function<void(size_t request, std::optional<int32_t> token)>;

struct GenerateTimes {
  double prefill = 0.0;      // seconds of the pass over the prompts
  double first_token = 0.0;  // seconds until the first token was known
  double total = 0.0;
};

// The new tokens of every request. All run as one batch; the tokens of a request do not depend on the
// others, except that their number may change how logits are rounded.
std::vector<std::vector<int32_t>> Generate(LanguageModel& model, std::span<TextRequest> requests,
                                           const GenerateOptions& options,
                                           const TokenSink& on_token = {},
                                           GenerateTimes* times = nullptr);

}  // namespace gt
