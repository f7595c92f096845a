// Text from a model: which weights and tokenizer a folder holds, how the next token is chosen, and
// how tokens become text as they appear.
//
// The choice is made on the CPU in double precision with one uniform number per token, which is a
// function of seed, sample and token index alone. The same seed gives the same text as long as the
// logits are the same.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/config/config.h"
#include "gt/models/model.h"
#include "gt/train/setup.h"

namespace gt {

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the likeliest token
  int64_t top_k = 50;        // only the k likeliest; 0: all
  double top_p = 1.0;        // only the likeliest that together reach this share; 1: all
};

struct TokenChance {
  int32_t token = 0;
  double chance = 0.0;
};

// The tokens that may come next and their chances, which add up to 1. First top_k, then top_p of
// what that left. Of equally likely tokens the one with the smaller id is kept.
std::vector<TokenChance> NextTokenChances(std::span<const float> logits,
                                          const SamplingOptions& options);

class Sampler {
 public:
  // Samples of one seed are independent of each other and of how many there are.
  Sampler(const SamplingOptions& options, int64_t seed, int64_t sample = 0);
  int32_t Next(std::span<const float> logits);

 private:
  double NextUniform();  // in [0, 1)

  SamplingOptions options_;
  uint64_t stream_;
  uint64_t drawn_ = 0;
};

// Text of tokens as they are generated, never a part of a character.
class TextStream {
 public:
  // `codec` must outlive the stream. The prompt's tokens are context: their text does not come out.
  TextStream(const TextCodec& codec, std::span<const int32_t> prompt);
  std::string Push(int32_t token);
  std::string Finish();  // what is left: U+FFFD for bytes that no token completed

 private:
  std::string PushByte(char byte);

  std::optional<StreamDecoder> decoder_;
  std::string bytes_;  // of a character that is not complete yet, when tokens are bytes
};

// Where a model is stored: a Hugging Face folder, or the checkpoints of a run with its config.
struct ModelSource {
  std::string hf_folder;    // empty: `config` and `checkpoints` count
  Config config = {};       // of the run
  std::string checkpoints;  // the folder that has the steps
  int64_t step = -1;        // -1: the latest
};

// `folder` is a Hugging Face folder, the dump folder of a run (its checkpoints, or the weights it
// exported when it kept none), a folder of checkpoints, or a single checkpoint.
ModelSource FindModel(const std::string& folder, int64_t step = -1);

// `tokenizer` as --model.tokenizer_path. Empty: the one beside the weights, else that of the run,
// else the one that ships with the program if the model has just its vocabulary.
TextCodec CodecOf(const ModelSource& source, const std::string& tokenizer = "");

// The prompt as the model saw beginnings of documents: with what the tokenizer puts in front. An
// empty prompt becomes the token that begins a text.
std::vector<int32_t> EncodePrompt(const TextCodec& codec, std::string_view prompt);

// Ready to run: on `device`, in float32 on the CPU and bfloat16 on a GPU, not training. Before any
// weights are read, BadPrompt if the model's positions end before the prompt and the new tokens do,
// and TokenOutOfVocabulary if its embedding lacks a token of the prompt.
ModelPtr LoadForGeneration(const ModelSource& source, std::span<const int32_t> prompt,
                           int64_t new_tokens, at::Device device);

struct GenerateOptions {
  int64_t max_new_tokens = 200;
  std::optional<int32_t> stop_token = {};  // generation ends before it
};

// The new tokens, each handed to `on_token` as soon as it is known.
std::vector<int32_t> Generate(LanguageModel& model, std::span<const int32_t> prompt,
                              const GenerateOptions& options, Sampler& sampler,
                              const std::function<void(int32_t)>& on_token = {});

}  // namespace gt
