#include "gt/train/tokenizer_export.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "gt/job/config.h"
#include "gt/testing/temp_folder.h"
#include "gt/tokenizer/byte_tokenizer.h"
#include "gt/train/model_source.h"
#include "gt/train/trainer.h"

namespace gt::tokenizer_export_test {
namespace {

using testing::ReadText;
using testing::WriteText;

const std::string kShipped = GT_SOURCE_DIR "/data/tokenizer";

// The shipped tokenizer without the last of its merges: another tokenizer of the same vocabulary.
std::string OtherTokenizer() {
  nlohmann::json json = nlohmann::json::parse(ReadText(kShipped + "/tokenizer.json"));
  json["model"]["merges"].erase(json["model"]["merges"].size() - 1);
  return json.dump();
}

class TokenizerExport : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("GT_HOME", GT_SOURCE_DIR, 1);
    std::filesystem::create_directories(hf_);
    WriteText(hf_ / "config.json", R"({"model_type": "llama", "eos_token_id": 5})");
  }
  nlohmann::json ExportedConfig() const {
    return nlohmann::json::parse(ReadText(hf_ / "config.json"));
  }
  bool Has(const char* name) const { return std::filesystem::exists(hf_ / name); }

  testing::TempFolder folder_;
  std::filesystem::path hf_ = folder_ / "hf";
};

// Not the tokenizer.json that happens to be beside it.
TEST_F(TokenizerExport, FileOfAnyNameBecomesTokenizerJson) {
  WriteText(folder_ / "custom.json", OtherTokenizer());
  WriteText(folder_ / "tokenizer.json", ReadText(kShipped + "/tokenizer.json"));
  WriteText(folder_ / "tokenizer_config.json", R"({"eos_token": "<|end_of_text|>"})");
  TextCodec codec((folder_ / "custom.json").string());
  ExportTokenizer(codec, "", hf_.string());
  EXPECT_EQ(ReadText(hf_ / "tokenizer.json"), OtherTokenizer());
  EXPECT_EQ(ReadText(hf_ / "tokenizer_config.json"), ReadText(folder_ / "tokenizer_config.json"));
  EXPECT_EQ(ExportedTokenizer(hf_.string()), hf_.string());
  TextCodec read(ExportedTokenizer(hf_.string()));
  EXPECT_EQ(read.eos_id(), codec.eos_id());
  EXPECT_EQ(ExportedConfig()["eos_token_id"], *codec.eos_id());
}

TEST_F(TokenizerExport, NothingOfAnEarlierTokenizerStays) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "generation_config.json"}) {
    WriteText(hf_ / name, "{}");
  }
  ExportTokenizer(TextCodec(kShipped), "", hf_.string());
  EXPECT_TRUE(Has("tokenizer.json") && Has("tokenizer_config.json"));
  EXPECT_FALSE(Has("special_tokens_map.json") || Has("generation_config.json"));
  // That tokens are bytes is written down, also for training on from here; tokenizer.json is for
  // other programs.
  WriteText(hf_ / "special_tokens_map.json", "{}");
  ExportTokenizer(TextCodec(std::string("bytes")), "", hf_.string());
  EXPECT_EQ(ReadText(hf_ / "tokenizer.json"), ByteTokenizerJson());
  EXPECT_EQ(ReadText(hf_ / "tokenizer_config.json"), ByteTokenizerConfigJson());
  EXPECT_FALSE(Has("special_tokens_map.json"));
  EXPECT_FALSE(ExportedConfig().contains("eos_token_id"));
  EXPECT_EQ(ExportedTokenizer(hf_.string()), "bytes");
  Config config;
  config.model.hf_path = hf_.string();
  EXPECT_EQ(TextCodec(config).tokenizer(), nullptr);
  // And it is forgotten once there is a tokenizer.
  ExportTokenizer(TextCodec(kShipped), "", hf_.string());
  EXPECT_EQ(ExportedTokenizer(hf_.string()), hf_.string());
  EXPECT_EQ(ReadText(hf_ / "tokenizer.json"), ReadText(kShipped + "/tokenizer.json"));
}

// Bytes that are not UTF-8 survive training on from an exported folder.
TEST_F(TokenizerExport, ExportedBytesAreReadAsBytes) {
  ExportTokenizer(TextCodec(std::string("bytes")), "", hf_.string());
  const TextCodec codec(ExportedTokenizer(hf_.string()));
  std::vector<int32_t> ids;
  codec.Encode("\xFF\x00z", ids);
  EXPECT_EQ(ids[0], 255);
  // Named as a tokenizer, it gives text the same ids.
  ids.clear();
  TextCodec(hf_.string()).Encode("gr\xC3\xBC\xC3\x9F", ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{'g', 'r', 0xC3, 0xBC, 0xC3, 0x9F}));
}

// Where a model keeps its own tokenizer, all that was published with it stays as it was, also when the
// export is written to the folder that it was read from.
TEST_F(TokenizerExport, OwnTokenizerKeepsItsFiles) {
  std::filesystem::path original = folder_ / "original";
  std::filesystem::create_directory(original);
  std::filesystem::copy(kShipped, original);
  WriteText(original / "generation_config.json", R"({"eos_token_id": [7, 8]})");
  ExportTokenizer(TextCodec(original.string()), original.string(), hf_.string());
  EXPECT_EQ(ReadText(hf_ / "generation_config.json"),
            ReadText(original / "generation_config.json"));
  EXPECT_EQ(ExportedConfig()["eos_token_id"], 5);
  ExportTokenizer(TextCodec(hf_.string()), hf_.string(), hf_.string());
  EXPECT_EQ(ReadText(hf_ / "tokenizer.json"), ReadText(kShipped + "/tokenizer.json"));
  EXPECT_TRUE(Has("generation_config.json"));
}

TEST_F(TokenizerExport, UnknownNoteIsAnError) {
  WriteText(hf_ / "config.json", R"({"gt_tokenizer": "words"})");
  testing::ExpectError(ErrorCode::kBadHfConfig, {"gt_tokenizer", "words"},
                       [&] { ExportedTokenizer(hf_.string()); });
}

// One dump folder, three runs: each leaves its own tokenizer, whatever the one before left.
TEST_F(TokenizerExport, EveryRunLeavesTheTokenizerItUsed) {
  Config config;
  config.device = DeviceChoice::kCpu;
  config.compile.mode = CompileMode::kEager;
  config.training.steps = 1;
  config.training.local_batch_size = 1;
  config.training.seq_len = 16;
  config.dump_folder = folder_.path().string();
  config.overwrite = true;
  config.model.flavor = "tiny";
  config.model.vocab_size = 2048;
  auto codec_after = [&] {
    ::testing::internal::CaptureStdout();
    Train(config);
    ::testing::internal::GetCapturedStdout();
    return CodecOf(FindModel(hf_.string())).path();
  };
  EXPECT_EQ(codec_after(), std::filesystem::canonical(hf_));
  config.model.hf_path = GT_SOURCE_DIR "/tests/parity/qwen3_moe";
  config.model.vocab_size = 0;
  config.model.tokenizer_path = "bytes";
  EXPECT_EQ(codec_after(), "bytes");
  EXPECT_EQ(ReadText(hf_ / "tokenizer.json"), ByteTokenizerJson());
  // A model that comes with a tokenizer, trained on with bytes.
  std::filesystem::path published = folder_ / "published";
  std::filesystem::copy(config.model.hf_path, published);
  std::filesystem::copy(kShipped, published, std::filesystem::copy_options::skip_existing);
  config.model.hf_path = published.string();
  EXPECT_EQ(codec_after(), "bytes");
  EXPECT_EQ(ReadText(hf_ / "tokenizer.json"), ByteTokenizerJson());
}

}  // namespace
}  // namespace gt::tokenizer_export_test
