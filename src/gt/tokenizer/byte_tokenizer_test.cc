#include "gt/tokenizer/byte_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gt/base/utf8.h"
#include "gt/testing/temp_folder.h"
#include "gt/tokenizer/byte_level.h"
#include "gt/tokenizer/tokenizer.h"

namespace gt::byte_tokenizer_test {
namespace {

Tokenizer Bytes() { return Tokenizer::FromJson(ByteTokenizerJson(), "bytes"); }

std::vector<int32_t> BytesOf(std::string_view text) {
  std::vector<int32_t> bytes;
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

TEST(ByteTokenizerTest, EveryByteIsItsOwnToken) {
  const Tokenizer tokenizer = Bytes();
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  for (int32_t byte = 0; byte < 256; ++byte) {
    const auto character = CharacterOfByte(static_cast<unsigned char>(byte));
    EXPECT_EQ(tokenizer.IdToToken(byte), std::string(character));
    EXPECT_EQ(tokenizer.TokenToId(character), byte);
    EXPECT_FALSE(tokenizer.IsSpecial(byte));
  }
  EXPECT_EQ(tokenizer.bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer.eos_id(), std::nullopt);
}

// The fixture is written by the `tokenizers` package, which gives its texts the ids beside it
// (tokenizer_test.cc): transformers reads the same.
TEST(ByteTokenizerTest, IsWhatTheTokenizersPackageWrites) {
  const auto fixture =
      nlohmann::json::parse(testing::ReadText(GT_SOURCE_DIR "/tests/tokenizer/bytes.json"));
  EXPECT_EQ(nlohmann::json::parse(ByteTokenizerJson()), fixture);
}

// All characters: together they have every byte that UTF-8 knows.
TEST(ByteTokenizerTest, TextBecomesItsBytesAndComesBack) {
  const Tokenizer tokenizer = Bytes();
  std::string all;
  for (char32_t character = 0; character < 0x30000; character += character < 0x900 ? 1 : 61) {
    if (character < 0xD800 || character > 0xDFFF) AppendUtf8(character, all);
  }
  AppendUtf8(0x10FFFF, all);
  for (const std::string& text :
       {all, std::string(), std::string(" "), std::string("  two  spaces , and\r\n\tmore . \n\n"),
        std::string("don't it's 12345 \xC3\xA9\xF0\x9F\x98\x80")}) {
    for (const bool special : {false, true}) {
      EXPECT_EQ(tokenizer.Encode(text, special), BytesOf(text));
    }
    EXPECT_EQ(tokenizer.Decode(BytesOf(text)), text);
  }
}

// As other programs read it; gt itself keeps such bytes.
TEST(ByteTokenizerTest, WhatIsNotUtf8DecodesToReplacements) {
  EXPECT_EQ(Bytes().Decode(BytesOf("a\xFFz\xC3")),
            "a" + std::string(kReplacementUtf8) + "z" + std::string(kReplacementUtf8));
  EXPECT_EQ(Bytes().Encode("\xFF"), BytesOf(kReplacementUtf8));
}

TEST(ByteTokenizerTest, TheConfigurationNamesNoTokens) {
  const nlohmann::json config = nlohmann::json::parse(ByteTokenizerConfigJson());
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["clean_up_tokenization_spaces"], false);
  EXPECT_FALSE(config.contains("bos_token"));
}

}  // namespace
}  // namespace gt::byte_tokenizer_test
