#include "gt/train/generate.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "gt/base/error.h"
#include "gt/models/hf_checkpoint.h"
#include "gt/tokenizer/utf8.h"
#include "gt/train/checkpoint.h"
#include "gt/train/trainer.h"

namespace gt::generate_test {
namespace {

namespace fs = std::filesystem;

const fs::path kFixtures = fs::path(GT_SOURCE_DIR) / "tests" / "parity";
const std::vector<int32_t> kPrompt = {3, 141, 59, 26, 500, 7};

std::string MessageOf(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(CodeName(error.code()), CodeName(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

void ExpectMessage(const std::function<void()>& body, ErrorCode code,
                   std::initializer_list<const char*> parts) {
  std::string message = MessageOf(body, code);
  for (const char* part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
}

class GenerateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("gt_generate_test_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A run of two steps with tokens that are bytes, with or without checkpoints.
  std::string Run(const std::string& name, bool checkpoints) {
    Config config;
    config.device = DeviceChoice::kCpu;
    config.model.flavor = "tiny";
    config.model.tokenizer_path = "bytes";
    config.training.steps = 2;
    config.training.local_batch_size = 1;
    config.training.seq_len = 16;
    config.checkpoint.enable = checkpoints;
    config.checkpoint.interval = 1;
    config.compile.mode = CompileMode::kEager;
    config.dump_folder = (folder_ / name).string();
    testing::internal::CaptureStdout();
    Train(config);
    testing::internal::GetCapturedStdout();
    return config.dump_folder;
  }

  static std::vector<int32_t> Greedy(const ModelSource& source,
                                     const std::vector<int32_t>& prompt) {
    ModelPtr model = LoadForGeneration(source, prompt, 8, at::kCPU);
    Sampler sampler({.temperature = 0.0}, 1);
    return Generate(*model, prompt, {.max_new_tokens = 8}, sampler);
  }

  fs::path folder_;
};

// Every family: the tokens are those of the whole sequence's logits, computed at once and unaware
// of how generation goes about it.
TEST_F(GenerateTest, GreedyTokensAreTheLargestLogitsOfEachStep) {
  for (const char* name : {"llama", "qwen3", "qwen3_moe", "deepseek_v3_full"}) {
    ModelSource source = FindModel((kFixtures / name).string());
    std::vector<int32_t> made = Greedy(source, kPrompt);
    ASSERT_EQ(made.size(), 8u) << name;
    std::vector<int64_t> all(kPrompt.begin(), kPrompt.end());
    all.insert(all.end(), made.begin(), made.end());
    ModelPtr model = BuildModelFromHf(source.hf_folder, {.max_length = 32});
    nn::Allocate(*model, at::kCPU);
    LoadHfWeights(*model, source.hf_folder);
    at::NoGradGuard no_gradients;
    at::Tensor tokens = at::tensor(all).unsqueeze(0);
    at::Tensor logits = model->Logits({tokens, at::arange(tokens.size(1)).unsqueeze(0)})[0];
    for (size_t i = 0; i < made.size(); ++i) {
      auto position = static_cast<int64_t>(kPrompt.size() + i) - 1;
      EXPECT_EQ(logits[position].argmax().item<int64_t>(), made[i]) << name << " token " << i;
    }
  }
}

TEST_F(GenerateTest, SameSeedSameTokens) {
  ModelSource source = FindModel((kFixtures / "llama").string());
  ModelPtr model = LoadForGeneration(source, kPrompt, 20, at::kCPU);
  auto draw = [&](int64_t seed, int64_t sample) {
    Sampler sampler({.temperature = 1.0, .top_k = 0}, seed, sample);
    std::vector<int32_t> streamed;
    auto made = Generate(*model, kPrompt, {.max_new_tokens = 20}, sampler,
                         [&](int32_t token) { streamed.push_back(token); });
    EXPECT_EQ(made, streamed);
    return made;
  };
  EXPECT_EQ(draw(42, 0), draw(42, 0));
  EXPECT_NE(draw(42, 0), draw(43, 0));
  EXPECT_NE(draw(42, 0), draw(42, 1));
}

TEST_F(GenerateTest, StopsBeforeTheStopToken) {
  ModelSource source = FindModel((kFixtures / "llama").string());
  ModelPtr model = LoadForGeneration(source, kPrompt, 8, at::kCPU);
  std::vector<int32_t> all = Greedy(source, kPrompt);
  Sampler sampler({.temperature = 0.0}, 1);
  int32_t stop = all[4];
  auto made = Generate(*model, kPrompt, {.max_new_tokens = 8, .stop_token = stop}, sampler);
  auto end = std::find(all.begin(), all.end(), stop);
  EXPECT_EQ(made, std::vector<int32_t>(all.begin(), end));
}

// Pearson's statistic of 20000 draws from 8 tokens. With 7 degrees of freedom it exceeds 24.3 once
// in a thousand times; drawing from another temperature gives hundreds.
double ChiSquare(const SamplingOptions& drawn, const SamplingOptions& expected) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 0.5f, 2.0f, -0.5f, 1.5f, 0.25f};
  constexpr int kDraws = 20000;
  Sampler sampler(drawn, 7);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sampler.Next(logits))];
  double total = 0.0, statistic = 0.0;
  for (float logit : logits) total += std::exp(logit / expected.temperature);
  for (size_t i = 0; i < logits.size(); ++i) {
    double mean = kDraws * std::exp(logits[i] / expected.temperature) / total;
    statistic += (counts[i] - mean) * (counts[i] - mean) / mean;
  }
  return statistic;
}

TEST(Sampler, FollowsTheDistribution) {
  SamplingOptions usual{.temperature = 0.7, .top_k = 0}, warmer{.temperature = 0.8, .top_k = 0};
  EXPECT_LT(ChiSquare(usual, usual), 24.3);
  EXPECT_LT(ChiSquare(warmer, warmer), 24.3);
  EXPECT_GT(ChiSquare(usual, warmer), 100.0);
}

std::set<int32_t> Kept(const std::vector<float>& logits, const SamplingOptions& options) {
  std::set<int32_t> kept;
  double sum = 0.0;
  for (const TokenChance& entry : NextTokenChances(logits, options)) {
    kept.insert(entry.token);
    sum += entry.chance;
  }
  EXPECT_NEAR(sum, 1.0, 1e-12);
  return kept;
}

TEST(Sampler, TopKAndTopPRestrict) {
  // Chances 0.4, 0.1, 0.3, 0.2.
  std::vector<float> logits = {std::log(0.4f), std::log(0.1f), std::log(0.3f), std::log(0.2f)};
  using Tokens = std::set<int32_t>;
  auto kept = [&](int64_t k, double p) {
    return Kept(logits, {.temperature = 1.0, .top_k = k, .top_p = p});
  };
  EXPECT_EQ(kept(0, 1.0), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(kept(100, 1.0), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(kept(2, 1.0), (Tokens{0, 2}));
  EXPECT_EQ(kept(1, 1.0), (Tokens{0}));
  EXPECT_EQ(kept(0, 0.39), (Tokens{0}));
  EXPECT_EQ(kept(0, 0.69), (Tokens{0, 2}));
  EXPECT_EQ(kept(0, 0.71), (Tokens{0, 2, 3}));
  EXPECT_EQ(kept(0, 1e-9), (Tokens{0}));
  // Of what top_k leaves, 0.4 and 0.3, the first has 0.57.
  EXPECT_EQ(kept(2, 0.5), (Tokens{0}));
  EXPECT_EQ(kept(2, 0.6), (Tokens{0, 2}));
}

TEST(Sampler, EqualLogitsAreDecidedByTheSmallerId) {
  std::vector<float> logits = {1.0f, 3.0f, 3.0f, 3.0f};
  EXPECT_EQ(Kept(logits, {.temperature = 0.0}), (std::set<int32_t>{1}));
  EXPECT_EQ(Kept(logits, {.temperature = 1.0, .top_k = 2}), (std::set<int32_t>{1, 2}));
}

TEST(Sampler, TinyTemperaturesAndImpossibleTokensAreFine) {
  const float kNever = -std::numeric_limits<float>::infinity();
  Sampler cold({.temperature = 1e-300, .top_k = 0}, 1);
  EXPECT_EQ(cold.Next(std::vector<float>{1.0f, 2.0f, -3.0f}), 1);
  Sampler sampler({.temperature = 1.0, .top_k = 0}, 1);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(sampler.Next(std::vector<float>{kNever, 0.5f, kNever}), 1);
  }
}

TEST(Sampler, BrokenLogitsAreAnError) {
  Sampler sampler({}, 1);
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ExpectMessage(
        [&] {
          sampler.Next(std::vector<float>{0.0f, bad});
        },
        ErrorCode::kBadPrompt, {"token 1", "diverged"});
  }
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

// The dump folder, its checkpoints, one of them, and the exported weights are the same model.
TEST_F(GenerateTest, EveryFolderOfARunIsAModel) {
  std::string run = Run("kept", /*checkpoints=*/true);
  const std::vector<int32_t> prompt = {'A', 'n', 'd'};
  std::vector<int32_t> expected = Greedy(FindModel(run + "/hf/"), prompt);
  for (std::string folder : {run, run + "/checkpoint", run + "/checkpoint/step-00000002"}) {
    ModelSource source = FindModel(folder);
    EXPECT_TRUE(source.hf_folder.empty()) << folder;
    EXPECT_EQ(Greedy(source, prompt), expected) << folder;
    EXPECT_EQ(CodecOf(source).tokenizer(), nullptr) << folder;
  }
  EXPECT_EQ(CodecOf(FindModel(run + "/hf")).tokenizer(), nullptr);
  // An older step has other weights.
  auto weights = [&](const ModelSource& source) {
    return LoadForGeneration(source, prompt, 1, at::kCPU)->HeadWeight();
  };
  EXPECT_FALSE(weights(FindModel(run, 1)).equal(weights(FindModel(run))));
  EXPECT_TRUE(
      weights(FindModel(run + "/checkpoint/step-00000001")).equal(weights(FindModel(run, 1))));
  ExpectMessage([&] { FindModel(run + "/hf", 1); }, ErrorCode::kConflictingOptions, {"--step 1"});
  ExpectMessage([&] { FindModel(run + "/checkpoint/step-00000001", 2); },
                ErrorCode::kConflictingOptions, {"--step 2"});
  ExpectMessage([&] { weights(FindModel(run, 9)); }, ErrorCode::kCheckpointDamaged, {"9"});
  fs::remove(run + "/config.toml");
  ExpectMessage([&] { FindModel(run + "/checkpoint"); }, ErrorCode::kUnknownModel, {"config.toml"});
}

TEST_F(GenerateTest, RunWithoutCheckpointsGivesItsExport) {
  std::string run = Run("exported", /*checkpoints=*/false);
  EXPECT_EQ(fs::path(FindModel(run).hf_folder).filename(), "hf");
  ExpectMessage([&] { FindModel(run, 2); }, ErrorCode::kUnknownModel, {"--checkpoint.enable"});
  fs::remove_all(run + "/hf");
  ExpectMessage([&] { FindModel(run); }, ErrorCode::kUnknownModel, {"exported no weights"});
}

// Weights of a run in bfloat16 are read as they are and computed with in float32.
TEST_F(GenerateTest, WeightsBecomeFloat32OnTheCpu) {
  Config config;
  config.model.flavor = "tiny";
  config.training.dtype = TrainingDtype::kBfloat16;
  config.training.mixed_precision_param = TrainingDtype::kBfloat16;
  ModelPtr model = BuildConfiguredModel(config);
  InitializeModel(*model, config, at::kCPU);
  AdamW optimizer(NamedTensors(), config.optimizer);
  World::Run(config, [&](World& world) {
    Progress progress;
    progress.step = 3;
    Checkpointer(config, *model, optimizer, at::kCPU, world, Mesh())
        .SaveTo((folder_ / "half").string(), progress);
  });
  std::ofstream(folder_ / "config.toml") << ToToml(config);
  ModelPtr loaded =
      LoadForGeneration(FindModel((folder_ / "half").string()), {{1, 2}}, 4, at::kCPU);
  EXPECT_EQ(loaded->HeadWeight().scalar_type(), at::kFloat);
  EXPECT_TRUE(loaded->HeadWeight().equal(model->HeadWeight().to(at::kFloat)));
  EXPECT_FALSE(loaded->is_training());
}

TEST_F(GenerateTest, MistakesAreExplained) {
  std::string llama = (kFixtures / "llama").string();
  ExpectMessage([] { FindModel("/does/not/exist"); }, ErrorCode::kUnknownModel,
                {"/does/not/exist", "--model"});
  ExpectMessage([&] { FindModel(folder_.string()); }, ErrorCode::kUnknownModel,
                {"config.json", "config.toml", "step-N"});
  ModelSource source = FindModel(llama);
  ExpectMessage([&] { CodecOf(source); }, ErrorCode::kBadTokenizer, {"2048", "512", "--tokenizer"});
  EXPECT_EQ(CodecOf(source, "bytes").tokenizer(), nullptr);
  ExpectMessage([&] { LoadForGeneration(source, kPrompt, 251, at::kCPU); }, ErrorCode::kBadPrompt,
                {"6 tokens", "257", "256"});
  EXPECT_NE(LoadForGeneration(source, kPrompt, 250, at::kCPU), nullptr);
  const std::vector<int32_t> outside = {1, 512};
  ExpectMessage([&] { LoadForGeneration(source, outside, 8, at::kCPU); },
                ErrorCode::kTokenOutOfVocabulary, {"token 1 of the prompt is 512", "512 tokens"});
}

}  // namespace
}  // namespace gt::generate_test
