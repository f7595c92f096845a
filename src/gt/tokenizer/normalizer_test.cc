#include "gt/tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gt::normalizer_test {
namespace {

struct Normalized {
  std::string text;
  std::size_t from_start;
};

Normalized Apply(std::string_view normalizer_json, std::string_view text, std::size_t from_start) {
  const nlohmann::json json = nlohmann::json::parse(normalizer_json);
  const Normalizer normalizer = Normalizer::FromJson(JsonPart(json, "t.json", "normalizer"));
  NormalizerScratch scratch;
  RegexScratch regex;
  const Piece piece = normalizer.Apply({text, from_start}, scratch, regex);
  return {std::string(piece.text), piece.from_start};
}

struct Example {
  const char* json;
  const char* text;
  const char* normalized;
  std::size_t from_start;  // of a text whose first character begins the input
};

class NormalizerExample : public ::testing::TestWithParam<Example> {};

TEST_P(NormalizerExample, ChangesTextAndKnowsWhereItBegan) {
  const Example& example = GetParam();
  const std::size_t first = std::string_view(example.text).empty() ? 0 : 1;
  const Normalized result = Apply(example.json, example.text, first);
  EXPECT_EQ(result.text, example.normalized);
  EXPECT_EQ(result.from_start, example.from_start);
}

constexpr const char* kStripBoth = R"({"type": "Strip", "strip_left": true, "strip_right": true})";

INSTANTIATE_TEST_SUITE_P(
    Cases, NormalizerExample,
    ::testing::Values(
        Example{R"({"type": "NFC"})", "e\u0301 a\u0323\u0307 x", "\u00e9 \u1ea1\u0307 x", 2},
        Example{R"({"type": "NFC"})", "a\u1100\u1161\u11a8\u0344", "a\uac01\u0308\u0301", 1},
        Example{R"({"type": "NFD"})", "x\u00e9\uac01", "xe\u0301\u1100\u1161\u11a8", 1},
        Example{R"({"type": "NFKC"})", "x\ufb01\u338f", "xfikg", 1},
        Example{R"({"type": "NFKD"})", "x\u00bd", "x1\u20442", 1},
        Example{R"({"type": "Lowercase"})", "A\u0130\u03a3", "ai\u0307\u03c3", 1},
        Example{R"({"type": "StripAccents"})", "e\u0301a", "ea", 1},
        Example{R"({"type": "Prepend", "prepend": "__"})", "ab", "__ab", 3},
        Example{R"({"type": "Prepend", "prepend": "__"})", "", "", 0},
        Example{kStripBoth, "a b\u2003 ", "a b", 1}, Example{kStripBoth, " a b", "a b", 0},
        Example{kStripBoth, "  ", "", 0},
        Example{R"({"type": "Replace", "pattern": {"String": " "}, "content": "__"})", " a b",
                "__a__b", 2},
        Example{R"({"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": "x"})", "abcab",
                "xcx", 0},
        Example{R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},
                    {"type": "Replace", "pattern": {"String": "a"}, "content": ""}]})",
                "ab", "_b", 1},
        Example{"null", "As it is", "As it is", 1}),
    [](const auto& test) { return "Case" + std::to_string(test.index); });

// Text that needs no change is copied in one go; around what does need it, neighbours count.
TEST(Normalizer, NfcLooksAtNeighboursOnly) {
  std::string text, want;
  for (int i = 0; i < 100; ++i) {
    text += "plain 中文 e\u0301";
    want += "plain 中文 \u00e9";
  }
  EXPECT_EQ(Apply(R"({"type": "NFC"})", text, 1).text, want);
}

}  // namespace
}  // namespace gt::normalizer_test
