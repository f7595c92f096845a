#include "gt/base/utf8.h"

#include <gtest/gtest.h>

namespace gt::utf8_test {
namespace {

struct Repair {
  std::string bytes;
  std::string text;  // with ? for U+FFFD
};

class InvalidUtf8 : public ::testing::TestWithParam<Repair> {};

// What Python's bytes.decode("utf-8", errors="replace") gives.
TEST_P(InvalidUtf8, EachMaximalSequenceBecomesOneReplacementCharacter) {
  std::string want;
  for (const char c : GetParam().text)
    want += c == '?' ? std::string(kReplacementUtf8) : std::string(1, c);
  EXPECT_FALSE(IsValidUtf8(GetParam().bytes));
  EXPECT_EQ(ToValidUtf8(GetParam().bytes), want);
  EXPECT_TRUE(IsValidUtf8(want));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, InvalidUtf8,
    ::testing::Values(Repair{"\x80", "?"}, Repair{"\xBF\xBF", "??"}, Repair{"a\xFFz", "a?z"},
                      Repair{"\xC0\x80", "??"}, Repair{"\xC1\xBFz", "??z"}, Repair{"\xC3", "?"},
                      Repair{"\xC3(", "?("}, Repair{"\xE2\x82", "?"}, Repair{"\xE2\x82z", "?z"},
                      Repair{"\xE0\x80\x80", "???"}, Repair{"\xE0\xA0", "?"},
                      Repair{"\xED\xA0\x80", "???"}, Repair{"\xED\x9F", "?"},
                      Repair{"\xF0\x9F\x98", "?"}, Repair{"\xF0\x9F\x98z", "?z"},
                      Repair{"\xF0\x80\x80\x80", "????"}, Repair{"\xF0\x9F", "?"},
                      Repair{"\xF4\x90\x80\x80", "????"}, Repair{"\xF4\x8F\xBF", "?"},
                      Repair{"\xF5\x80\x80\x80", "????"}, Repair{"\xF8\x88\x80\x80\x80", "?????"},
                      Repair{"\xE2\xE2\x82\xFF", "???"}, Repair{"\xF0\x9F\xC3z", "??z"},
                      Repair{"12345678\xE2\x82", "12345678?"}),
    [](const auto& test) { return "Case" + std::to_string(test.index); });

TEST(Utf8, ValidTextStaysAsItIs) {
  for (const std::string text : {"", "ascii only, more than eight bytes", "é", "中文", "👍🏽",
                                 "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF", "\xEE\x80\x80"}) {
    EXPECT_TRUE(IsValidUtf8(text)) << text;
    EXPECT_EQ(ToValidUtf8(text), text);
  }
}

TEST(Utf8, CharactersGoThereAndBack) {
  for (char32_t c = 0; c < 0x110000; c += 97) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string text = ToUtf8(c);
    std::size_t position = 0;
    ASSERT_EQ(NextCharacter(text, position), c);
    ASSERT_EQ(position, text.size());
    ASSERT_EQ(PreviousCharacter("x" + text, text.size() + 1), 1u);
  }
}

}  // namespace
}  // namespace gt::utf8_test
