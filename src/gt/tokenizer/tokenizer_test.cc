#include "gt/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "gt/base/error.h"
#include "gt/testing/temp_folder.h"

namespace gt::tokenizer_test {
namespace {

using testing::ReadText;

using Ids = std::vector<int32_t>;
using nlohmann::json;

const std::filesystem::path kFixtures = GT_SOURCE_DIR "/tests/tokenizer";

json ReadJson(const std::string& name) { return json::parse(ReadText(kFixtures / name)); }

std::string MessageOf(const std::string& tokenizer_json) {
  try {
    Tokenizer::FromJson(tokenizer_json, "t.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadTokenizer);
    return error.message();
  }
  return "no error";
}

// The least that is a tokenizer: a, b and ab, with parts to be filled in by tests.
json Smallest() {
  return json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2},
                                   "merges": [["a", "b"]]}})");
}

class PublishedForm : public ::testing::TestWithParam<const char*> {
 protected:
  Tokenizer tokenizer = Tokenizer::FromFile(kFixtures / (std::string(GetParam()) + ".json"));
  json corpus = ReadJson("corpus.json");
  json expected = ReadJson(std::string(GetParam()) + ".ids.json");
};

// Ids and decoded text are those of the `tokenizers` package, over scripts, emoji, code, white
// space, control characters, long words and added tokens. make_fixtures.py made them.
TEST_P(PublishedForm, AgreesWithTheTokenizersPackage) {
  ASSERT_EQ(corpus.size(), expected.size());
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    const std::string text = corpus[i];
    const json& want = expected[i];  // ids, ids with special tokens, decoded without and with them
    const Ids plain = want[0];
    ASSERT_EQ(tokenizer.Encode(text), plain) << text;
    const Ids special = want[1].is_null() ? plain : want[1].get<Ids>();
    ASSERT_EQ(tokenizer.Encode(text, true), special) << text;
    const auto text_or = [&](const json& decoded) {
      return decoded.is_null() ? text : decoded.get<std::string>();
    };
    if (plain.empty()) continue;
    ASSERT_EQ(tokenizer.Decode(plain, true), text_or(want[2])) << text;
    ASSERT_EQ(tokenizer.Decode(plain, false), text_or(want[3])) << text;
  }
}

TEST_P(PublishedForm, StreamedPiecesAreValidAndMakeUpTheWholeText) {
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    const Ids ids = expected[i][0];
    StreamDecoder decoder(tokenizer);
    std::string all;
    for (const int32_t id : ids) {
      const std::string piece = decoder.Push(id);
      EXPECT_NO_THROW(json(piece).dump()) << "a piece is not UTF-8";
      all += piece;
    }
    all += decoder.Finish();
    ASSERT_EQ(all, tokenizer.Decode(ids)) << corpus[i];
  }
}

TEST_P(PublishedForm, AppendsTheSameIdsWithCachesWarm) {
  Ids once, twice;
  for (const json& text : corpus) tokenizer.Encode(text.get<std::string>(), once);
  for (const json& text : corpus) tokenizer.Encode(text.get<std::string>(), twice);
  EXPECT_EQ(once, twice);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedForm,
                         ::testing::Values("bytes", "llama3", "qwen2", "gpt2", "gpt2_prefix",
                                           "gpt4o", "deepseek_v3", "starcoder", "contiguous",
                                           "inverted", "llama2", "mistral_first",
                                           "metaspace_always", "metaspace_never", "gemma",
                                           "suffix"),
                         [](const auto& test) { return std::string(test.param); });

TEST(Tokenizer, TheOneThatShipsFitsTheSampleText) {
  const Tokenizer tokenizer = Tokenizer::FromFile(GT_SOURCE_DIR "/data/tokenizer");
  EXPECT_EQ(tokenizer.vocab_size(), 2048);
  EXPECT_EQ(tokenizer.bos_id(), tokenizer.TokenToId("<|begin_of_text|>"));
  EXPECT_EQ(tokenizer.eos_id(), tokenizer.TokenToId("<|end_of_text|>"));
  ASSERT_TRUE(tokenizer.bos_id() && tokenizer.eos_id());
  const std::string text = ReadText(GT_SOURCE_DIR "/data/sample.txt");
  const Ids ids = tokenizer.Encode(text);
  EXPECT_EQ(tokenizer.Decode(ids), text);
  EXPECT_LT(ids.size(), text.size() / 3);
  EXPECT_EQ(tokenizer.Encode("", true), Ids{*tokenizer.bos_id()});
}

TEST(Tokenizer, EveryByteSurvivesAByteLevelVocabulary) {
  const Tokenizer tokenizer = Tokenizer::FromFile(GT_SOURCE_DIR "/data/tokenizer");
  std::string text;
  for (char32_t c = 1; c < 0x3000; c += 7) {
    if (c < 0x80) text += static_cast<char>(c);
    if (c >= 0x80 && c < 0x800) {
      text += {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))};
    }
  }
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
}

// Broken bytes are read as Python reads them with errors="replace".
TEST(Tokenizer, InvalidUtf8IsReadAsReplacementCharacters) {
  const Tokenizer tokenizer = Tokenizer::FromFile(kFixtures / "gpt2.json");
  EXPECT_EQ(tokenizer.Encode("a\xE4\xBD"
                             "b\xFF"),
            tokenizer.Encode("a\xEF\xBF\xBD"
                             "b\xEF\xBF\xBD"));
}

TEST(Tokenizer, LooksUpTokensBothWays) {
  const Tokenizer tokenizer = Tokenizer::FromFile(kFixtures / "llama3.json");
  const std::optional<int32_t> end = tokenizer.TokenToId("<|end|>");
  ASSERT_TRUE(end);
  EXPECT_EQ(tokenizer.IdToToken(*end), "<|end|>");
  EXPECT_TRUE(tokenizer.IsSpecial(*end));
  EXPECT_EQ(tokenizer.TokenToId("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.IdToToken(-1), std::nullopt);
  EXPECT_EQ(tokenizer.IdToToken(1 << 30), std::nullopt);
  EXPECT_EQ(tokenizer.Decode(Ids{-5, 1 << 30}), "");
  EXPECT_EQ(tokenizer.IdToToken(static_cast<int32_t>(tokenizer.vocab_size())), std::nullopt);
  EXPECT_NE(tokenizer.IdToToken(static_cast<int32_t>(tokenizer.vocab_size()) - 1), std::nullopt);
}

// A million characters without a place to split. Quadratic merging would take hours.
TEST(Tokenizer, VeryLongWordsTakeNoLongerThanOthers) {
  const std::string once = ReadText(GT_SOURCE_DIR "/data/sample.txt").substr(0, 1000);
  std::string letters;
  for (const char c : once) {
    if (c >= 'a' && c <= 'z') letters += c;
  }
  std::string word;
  while (word.size() < 1'000'000) word += letters;
  for (const char* name : {"llama3.json", "llama2.json"}) {
    const Tokenizer tokenizer = Tokenizer::FromFile(kFixtures / name);
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(word)), word) << name;
    const std::string spaces(1'000'000, ' ');
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("a" + spaces + "b")), "a" + spaces + "b") << name;
  }
}

// Merging with a queue and merging by search must not differ: texts around the length at which one
// takes over from the other.
TEST(Tokenizer, LongWordsMergeAsShortOnesDo) {
  json document = Smallest();
  document["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"ab", 2}, {"aba", 3}, {"abab", 4}, {"aa", 5}};
  document["model"]["merges"] = {"a b", "ab a", "ab ab", "a a"};
  const Tokenizer tokenizer = Tokenizer::FromJson(document.dump(), "t.json");
  // Words of a's and b's, cut where no merge reaches across: after "bb".
  const std::string word = "abaababaabbb";
  const Ids ids = tokenizer.Encode(word);
  std::string words;
  Ids all;
  for (int i = 0; i < 30; ++i) {
    words += word;
    all.insert(all.end(), ids.begin(), ids.end());
    EXPECT_EQ(tokenizer.Encode(words), all) << i;
  }
}

TEST(Tokenizer, IsUsableFromSeveralThreads) {
  const Tokenizer tokenizer = Tokenizer::FromFile(kFixtures / "qwen2.json");
  const json corpus = ReadJson("corpus.json");
  const json expected = ReadJson("qwen2.ids.json");
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < corpus.size(); ++i) {
        if (tokenizer.Encode(corpus[i].get<std::string>()) != expected[i][0].get<Ids>()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

class TokenizerFolder : public ::testing::Test {
 protected:
  void SetUp() override { Write("tokenizer.json", Smallest().dump()); }
  void Write(const std::string& name, const std::string& text) {
    testing::WriteText(folder / name, text);
  }

  testing::TempFolder folder;
};

TEST_F(TokenizerFolder, BeginAndEndComeFromTheFirstFileThatNamesThem) {
  EXPECT_EQ(Tokenizer::FromFile(folder).bos_id(), std::nullopt);
  Write("config.json", R"({"bos_token_id": 2, "eos_token_id": [1, 0]})");
  EXPECT_EQ(Tokenizer::FromFile(folder).bos_id(), 2);
  EXPECT_EQ(Tokenizer::FromFile(folder).eos_id(), 1);
  Write("special_tokens_map.json", R"({"bos_token": {"content": "a"}, "eos_token": "missing"})");
  EXPECT_EQ(Tokenizer::FromFile(folder).bos_id(), 0);
  EXPECT_EQ(Tokenizer::FromFile(folder).eos_id(), 1);
  Write("tokenizer_config.json", R"({"bos_token": null, "eos_token": "ab"})");
  EXPECT_EQ(Tokenizer::FromFile(folder / "tokenizer.json").bos_id(), 0);
  EXPECT_EQ(Tokenizer::FromFile(folder / "tokenizer.json").eos_id(), 2);
}

TEST_F(TokenizerFolder, FilesThatCannotBeReadAreNamed) {
  Write("tokenizer_config.json", "{");
  try {
    Tokenizer::FromFile(folder);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("tokenizer_config.json: this is not JSON: line 1"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(Tokenizer::FromFile(folder / "nothing.json"), Error);
  std::filesystem::remove(folder / "tokenizer.json");
  EXPECT_THROW(Tokenizer::FromFile(folder), Error);
}

struct Damage {
  const char* pointer;  // where in the smallest tokenizer
  const char* value;    // what to write there
  const char* message;  // what must be in the message
};

class DamagedTokenizer : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedTokenizer, SaysWhatAndWhere) {
  json document = Smallest();
  document[json::json_pointer(GetParam().pointer)] = json::parse(GetParam().value);
  const std::string message = MessageOf(document.dump());
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_TRUE(message.starts_with("t.json")) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Files, DamagedTokenizer,
    ::testing::Values(
        Damage{"/version", "\"2.0\"", "version: gt knows version 1.0"},
        Damage{"/model", "{\"type\": \"Unigram\", \"vocab\": []}",
               "model.type: gt does not know \"Unigram\"; it knows BPE"},
        Damage{"/model/type", "\"WordPiece\"", "model.type: gt does not know \"WordPiece\""},
        Damage{"/model/vocab", "[]", "model.vocab: must be an object"},
        Damage{"/model/vocab/a", "-1", "model.vocab.a: must be a whole number"},
        Damage{"/model/vocab/a", "\"x\"", "model.vocab.a: must be a whole number"},
        Damage{"/model/vocab/a", "4000000000", "model.vocab.a: must be a whole number"},
        Damage{"/model/vocab/a", "1e300", "model.vocab.a: must be a whole number"},
        Damage{"/model/vocab/a", "1", "have the same id 1"},
        Damage{"/model/merges", "[[\"a\", \"c\"]]", "needs the token \"c\""},
        Damage{"/model/merges", "[[\"b\", \"a\"]]", "needs the token \"ba\""},
        Damage{"/model/merges", "[\"a  b\"]", "item 0 must be two tokens"},
        Damage{"/model/merges", "[3]", "item 0 must be two tokens"},
        Damage{"/model/merges", "{}", "must be a list"},
        Damage{"/model/dropout", "0.5", "model.dropout"},
        Damage{"/normalizer", "{\"type\": \"Precompiled\"}", "normalizer.type: gt does not know"},
        Damage{"/normalizer", "{}", "normalizer: the key \"type\" is missing"},
        Damage{"/normalizer", "3", "normalizer: must be an object, not 3"},
        Damage{"/pre_tokenizer",
               "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
               "\"individual_digits\": true}, {\"type\": \"BertPreTokenizer\"}]}",
               "pre_tokenizer.pretokenizers[1].type: gt does not know \"BertPreTokenizer\""},
        Damage{"/pre_tokenizer",
               "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": "
               "\"Isolated\", \"invert\": false}",
               "pre_tokenizer.pattern: the pattern \"(\" is not a regular expression"},
        Damage{"/pre_tokenizer",
               "{\"type\": \"Split\", \"pattern\": {\"String\": \"x\"}, \"behavior\": \"Nearby\", "
               "\"invert\": false}",
               "pre_tokenizer.behavior: gt does not know \"Nearby\""},
        Damage{"/pre_tokenizer", "{\"type\": \"Metaspace\", \"replacement\": \"ab\"}",
               "pre_tokenizer.replacement: must be a single character"},
        Damage{"/decoder", "{\"type\": \"CTC\"}", "decoder.type: gt does not know \"CTC\""},
        Damage{"/post_processor",
               "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": "
               "\"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {}}",
               "post_processor.special_tokens: the key \"<s>\" is missing"},
        Damage{"/added_tokens", "[{\"id\": 7}]", "added_tokens[0]: the key \"content\" is missing"},
        Damage{"/added_tokens", "[{\"id\": 8589934592, \"content\": \"<a>\"}]",
               "added_tokens[0].id: must be a whole number from 0 to 16777215, not 8589934592"},
        Damage{"/added_tokens", "[{\"id\": 7, \"content\": \"\"}]",
               "added_tokens[0]: a token without content"},
        Damage{"/added_tokens", "{}", "added_tokens: must be a list"}),
    [](const auto& test) { return "Case" + std::to_string(test.index); });

TEST(Tokenizer, TextThatIsNotJsonIsAnError) {
  EXPECT_EQ(
      MessageOf(""),
      "t.json: this is not JSON: line 1, column 1: syntax error while parsing value - unexpected "
      "end of input; expected '[', '{', or a literal");
  EXPECT_NE(MessageOf("{\n\"model\": }").find("line 2, column 10"), std::string::npos);
  EXPECT_NE(MessageOf("[]").find("must hold an object"), std::string::npos);
  EXPECT_NE(MessageOf("{}").find("the key \"model\" is missing"), std::string::npos);
  EXPECT_NE(MessageOf(std::string(100000, '[')).find("not JSON"), std::string::npos);
  EXPECT_NE(MessageOf("1e999").find("not JSON"), std::string::npos);
  EXPECT_NE(MessageOf("{\"model\": \"\xFF\"}").find("not JSON"), std::string::npos);
}

TEST(Tokenizer, SequencesInSequencesHaveAnEnd) {
  json inner = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) inner = {{"type", "Sequence"}, {"normalizers", {inner}}};
  json document = Smallest();
  document["normalizer"] = inner;
  EXPECT_NE(MessageOf(document.dump()).find("nested too deeply"), std::string::npos);
}

TEST(Tokenizer, AMissingUnknownTokenIsReportedWhenItIsNeeded) {
  json document = Smallest();
  document["model"]["unk_token"] = "<unk>";
  const Tokenizer tokenizer = Tokenizer::FromJson(document.dump(), "t.json");
  EXPECT_EQ(tokenizer.Encode("abba"), (Ids{2, 1, 0}));
  EXPECT_THROW(tokenizer.Encode("abc"), Error);
}

}  // namespace
}  // namespace gt::tokenizer_test
