#include "gt/generate/generate.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "gt/base/error.h"
#include "gt/base/utf8.h"
#include "gt/testing/temp_folder.h"
#include "gt/train/model_source.h"

namespace gt::generate_test {
namespace {

const std::vector<int32_t> kPrompt = {3, 141, 59, 26, 500, 7};

ModelPtr LoadFixture(const char* name, int64_t new_tokens = 24) {
  ModelSource source = FindModel(std::string(GT_SOURCE_DIR) + "/tests/parity/" + name);
  return LoadForGeneration(source, std::vector<std::vector<int32_t>>{kPrompt}, new_tokens,
                           at::kCPU);
}

std::vector<TextRequest> GreedyRequests(const std::vector<std::vector<int32_t>>& prompts) {
  std::vector<TextRequest> requests;
  for (const auto& prompt : prompts) requests.push_back({prompt, Sampler({.temperature = 0.0}, 1)});
  return requests;
}

std::vector<int32_t> Greedy(LanguageModel& model, const std::vector<int32_t>& prompt,
                            int64_t new_tokens) {
  std::vector<TextRequest> requests = GreedyRequests({prompt});
  return Generate(model, requests, {.max_new_tokens = new_tokens})[0];
}

// The token with the largest logit after each beginning of the text, from one pass over all of it that
// knows nothing of how it was generated.
void ExpectLargestLogits(LanguageModel& model, const std::vector<int32_t>& prompt,
                         const std::vector<int32_t>& made, const std::string& name) {
  std::vector<int64_t> all(prompt.begin(), prompt.end());
  all.insert(all.end(), made.begin(), made.end());
  at::NoGradGuard no_gradients;
  at::Tensor tokens = at::tensor(all).unsqueeze(0);
  at::Tensor logits = model.Logits({tokens, at::arange(tokens.size(1)).unsqueeze(0)})[0];
  for (size_t i = 0; i < made.size(); ++i) {
    auto position = static_cast<int64_t>(prompt.size() + i) - 1;
    EXPECT_EQ(logits[position].argmax().item<int64_t>(), made[i]) << name << " token " << i;
  }
}

TEST(Generate, GreedyTokensAreTheLargestLogitsOfEachStep) {
  for (const char* name : {"llama", "qwen3", "qwen3_moe", "deepseek_v3_full"}) {
    ModelPtr model = LoadFixture(name);
    std::vector<int32_t> made = Greedy(*model, kPrompt, 24);
    ASSERT_EQ(made.size(), 24u) << name;
    ExpectLargestLogits(*model, kPrompt, made, name);
  }
}

// Prompts of different lengths in one batch, of which one ends early, give what each gives alone.
TEST(Generate, TextsDoNotDependOnTheirBatch) {
  const std::vector<std::vector<int32_t>> prompts = {kPrompt, {9}, {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  for (const char* name : {"llama", "qwen3_moe", "deepseek_v3_full"}) {
    ModelPtr model = LoadFixture(name, /*new_tokens=*/30);
    GenerateOptions options{.max_new_tokens = 20, .stop_token = Greedy(*model, prompts[1], 8)[5]};
    for (double temperature : {0.0, 1.0}) {
      auto request = [&](size_t prompt) {
        Sampler sampler({.temperature = temperature, .top_k = 0}, 42, 3);
        return TextRequest{prompts[prompt], sampler};
      };
      std::vector<TextRequest> batch = {request(0), request(1), request(2)};
      auto together = Generate(*model, batch, options);
      for (size_t i = 0; i < prompts.size(); ++i) {
        std::vector<TextRequest> alone = {request(i)};
        EXPECT_EQ(Generate(*model, alone, options)[0], together[i]) << name << " prompt " << i;
      }
    }
  }
}

// Another model, with the shapes of what it was given.
class RecordingModel : public LanguageModel {
 public:
  explicit RecordingModel(ModelPtr model) : model_(std::move(model)) {}
  at::Tensor Hidden(const ModelInputs& inputs) override {
    passes.push_back(inputs.tokens.sizes().vec());
    return model_->Hidden(inputs);
  }
  bool UsesCache() const override { return model_->UsesCache(); }
  at::Tensor HeadWeight() const override { return model_->HeadWeight(); }
  int64_t vocab_size() const override { return model_->vocab_size(); }
  int64_t FlopsPerToken(int64_t length) const override { return model_->FlopsPerToken(length); }
  int64_t ActiveParameters() const override { return model_->ActiveParameters(); }
  std::vector<HfTensor> HfTensors() const override { return model_->HfTensors(); }
  nlohmann::json HfConfigJson() const override { return model_->HfConfigJson(); }

  std::vector<std::vector<int64_t>> passes;

 private:
  ModelPtr model_;
};

// What a token costs does not grow with what was generated before.
TEST(Generate, PromptsAreOnePassAndEveryTokenAnother) {
  for (const char* name : {"llama", "qwen3_moe", "deepseek_v3_full"}) {
    RecordingModel model(LoadFixture(name));
    std::vector<TextRequest> requests = GreedyRequests({kPrompt, {1, 2}});
    Generate(model, requests, {.max_new_tokens = 5});
    using Shapes = std::vector<std::vector<int64_t>>;
    EXPECT_EQ(model.passes, (Shapes{{2, 6}, {2, 1}, {2, 1}, {2, 1}, {2, 1}})) << name;
  }
}

// A family that does not remember anything runs the whole text for every token.
TEST(Generate, ModelsWithoutACacheGenerateToo) {
  ModelPtr model = BuildModel("alibi_window", "tiny", {.max_length = 40});
  ASSERT_FALSE(model->UsesCache());
  nn::Materialize(*model, at::kCPU, /*seed=*/3);
  model->eval();
  const std::vector<std::vector<int32_t>> prompts = {{3, 141, 59}, {26, 5, 35, 89, 79}};
  std::vector<TextRequest> requests = GreedyRequests(prompts);
  auto made = Generate(*model, requests, {.max_new_tokens = 12});
  for (size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_EQ(made[i].size(), 12u);
    ExpectLargestLogits(*model, prompts[i], made[i], "alibi_window");
  }
}

TEST(Generate, SameSeedSameTokens) {
  ModelPtr model = LoadFixture("llama");
  auto draw = [&](int64_t seed, int64_t sample) {
    std::vector<TextRequest> requests = {
        {kPrompt, Sampler({.temperature = 1.0, .top_k = 0}, seed, sample)}};
    return Generate(*model, requests, {.max_new_tokens = 20})[0];
  };
  EXPECT_EQ(draw(42, 0), draw(42, 0));
  EXPECT_NE(draw(42, 0), draw(43, 0));
  EXPECT_NE(draw(42, 0), draw(42, 1));
}

TEST(Generate, TokensComeAsTheyAreKnownAndTextsEndOnce) {
  ModelPtr model = LoadFixture("llama");
  std::vector<int32_t> all = Greedy(*model, kPrompt, 8);
  int32_t stop = all[4];
  std::vector<TextRequest> requests = GreedyRequests({kPrompt, {5, 4}});
  std::vector<std::vector<int32_t>> streamed(2);
  std::vector<int> ends(2);
  GenerateTimes times;
  auto made = Generate(
      *model, requests, {.max_new_tokens = 8, .stop_token = stop},
      [&](size_t request, std::optional<int32_t> token) {
        EXPECT_EQ(ends[request], 0);
        if (token) {
          streamed[request].push_back(*token);
        } else {
          ++ends[request];
        }
      },
      &times);
  EXPECT_EQ(made[0], std::vector<int32_t>(all.begin(), std::find(all.begin(), all.end(), stop)));
  EXPECT_EQ(made, streamed);
  EXPECT_EQ(ends, (std::vector<int>{1, 1}));
  EXPECT_GT(times.prefill, 0.0);
  EXPECT_GE(times.first_token, times.prefill);
  EXPECT_GE(times.total, times.first_token);
}

TEST(Generate, EmptyPromptIsAnError) {
  ModelPtr model = LoadFixture("llama");
  testing::ExpectError(ErrorCode::kBadPrompt, {"no tokens"}, [&] { Greedy(*model, {}, 1); });
}

// Whatever the tokens, no piece is broken UTF-8, and all pieces are the text.
TEST(TextStream, GivesWholeCharacters) {
  setenv("GT_HOME", GT_SOURCE_DIR, 1);
  for (const char* path : {"bytes", GT_SOURCE_DIR "/data/tokenizer"}) {
    TextCodec codec{std::string(path)};
    for (std::string text : {"naïve – 日本語 🙂👩‍👩‍👧 done", "plain"}) {
      std::vector<int32_t> tokens;
      codec.Encode(text, tokens);
      TextStream stream(codec, {});
      std::string all;
      for (int32_t token : tokens) {
        std::string piece = stream.Push(token);
        EXPECT_TRUE(IsValidUtf8(piece)) << path;
        EXPECT_EQ(piece.find(kReplacementUtf8), std::string::npos) << path;
        all += piece;
      }
      EXPECT_EQ(all + stream.Finish(), text) << path;
    }
  }
}

TEST(TextStream, BrokenBytesComeOutAsPythonReadsThem) {
  TextCodec codec{std::string("bytes")};
  for (std::string bytes : {"a\xC3"
                            "b",
                            "\xE2\x82", "\x80\x80z", "\xF0\x9F\x99\x41", "\xC3\xE2\x82\xAC",
                            "\xE0\x80\x80", "\xFF\xFE", "\xF0\x9F\x99\x82\xC3"}) {
    TextStream stream(codec, {});
    std::string all;
    for (char byte : bytes) all += stream.Push(static_cast<unsigned char>(byte));
    EXPECT_EQ(all + stream.Finish(), ToValidUtf8(bytes));
  }
}

TEST(TextStream, PromptIsContextOnly) {
  TextCodec codec{std::string(GT_SOURCE_DIR "/data/tokenizer")};
  std::vector<int32_t> prompt = EncodePrompt(codec, "And God said"), more;
  codec.Encode(" unto them", more);
  TextStream stream(codec, prompt);
  std::string text;
  for (int32_t token : more) text += stream.Push(token);
  EXPECT_EQ(text + stream.Finish(), " unto them");
}

TEST(EncodePrompt, BeginsAsDocumentsDo) {
  TextCodec codec{std::string(GT_SOURCE_DIR "/data/tokenizer")}, bytes{std::string("bytes")};
  EXPECT_EQ(EncodePrompt(codec, "").size(), 1u);
  EXPECT_EQ(EncodePrompt(codec, "")[0], codec.bos_id());
  EXPECT_EQ(EncodePrompt(codec, "And")[0], codec.bos_id());
  EXPECT_EQ(EncodePrompt(bytes, ""), std::vector<int32_t>{'\n'});
  EXPECT_EQ(EncodePrompt(bytes, "ab"), (std::vector<int32_t>{'a', 'b'}));
}

}  // namespace
}  // namespace gt::generate_test
