#include "gt/tokenizer/regex.h"

#include <gtest/gtest.h>

#include <string>

#include "gt/base/error.h"
#include "gt/tokenizer/regex_syntax.h"

namespace gt::regex_test {
namespace {

// The text with each match in brackets.
std::string Marked(std::string_view pattern, std::string_view text) {
  const Regex regex = Regex::FromPattern(pattern);
  RegexScratch scratch;
  std::string out;
  regex.Cut(text, scratch, [&](std::size_t begin, std::size_t end, bool is_match) {
    const std::string part(text.substr(begin, end - begin));
    out += is_match ? "[" + part + "]" : part;
  });
  return out;
}

struct Example {
  const char* pattern;
  const char* text;
  const char* marked;
};

class OnigurumaPattern : public ::testing::TestWithParam<Example> {};

TEST_P(OnigurumaPattern, MatchesAsInOniguruma) {
  EXPECT_EQ(Marked(GetParam().pattern, GetParam().text), GetParam().marked);
}

INSTANTIATE_TEST_SUITE_P(
    Differences, OnigurumaPattern,
    ::testing::Values(
        Example{R"(^a|b$)", "a\nab\nb", "[a]\n[a][b]\n[b]"},  // lines, always
        Example{R"(.)", "a\nb", "[a]\n[b]"},                  // not newlines
        Example{R"((?m:.)+)", "a\nb", "[a\nb]"},              // m is what is elsewhere called s
        Example{R"(\h+)", "xfaz 0g", "x[fa]z [0]g"},          // hexadecimal digits
        Example{R"(a\vb)", "a\vb a\nb", "[a\vb] a\nb"},       // one character
        Example{R"(a{2}+)", "aaaaa", "[aaaa]a"},              // repeats, is not possessive
        Example{R"(a{2,3}+b)", "aaaaab", "[aaaaab]"},
        Example{R"(a{2}?b)", "aab b", "[aab] [b]"},       // optional, not lazy
        Example{R"(a{1,3}?)", "aaa", "[a][a][a]"},        // lazy in both
        Example{R"(a{,2}b)", "aaab", "a[aab]"},           // from zero
        Example{R"(a++b|a?+c)", "aab ac", "[aab] [ac]"},  // possessive in both
        Example{R"((?:ab){2}+)", "ababab", "[abab]ab"},
        Example{"\\s+", "a\u180e\u2003\u0085b", "a\u180e[\u2003\u0085]b"},  // White_Space
        Example{"\\S+", "a\u180e\u2003b", "[a\u180e]\u2003[b]"},
        Example{R"([^\s\p{L}]+)", "a. !b", "a[.] [!]b"},
        Example{R"([\S&&[^a]]+)", "ab c", "a[b] [c]"},  // intersections
        Example{R"([a-z&&[^aeiou]]+)", "banana", "[b]a[n]a[n]a"},
        Example{R"([ab[cd]]+)", "abcde", "[abcd]e"},  // nested classes
        Example{R"([^a\S]+)", "a \nb", "a[ \n]b"}, Example{R"([^\W\d]+)", "a1_b", "[a]1[_b]"},
        Example{R"([\w-]+)", "a-b c", "[a-b] [c]"}, Example{R"([\s-]+)", "a - b", "a[ - ]b"},
        Example{R"(\w+)", "e\u0301x \u203f1", "[e\u0301x] [\u203f1]"},  // marks belong to words
        Example{R"(\bfoo\b)", "foo foox xfoo foo.", "[foo] foox xfoo [foo]."},
        Example{R"([[:alpha:]]+|[[:^space:]])", "ab1 c", "[ab][1] [c]"},
        Example{R"(\u0041\x{42})", "AB", "[AB]"}, Example{R"(\p{Letter}+)", "ab1", "[ab]1"},
        Example{R"(\p{^L}+)", "ab1.", "ab[1.]"}, Example{R"(\P{L}+)", "ab1.", "ab[1.]"},
        Example{R"((?i:'s|'ll))", "it'S 'LL '\u017f", "it['S] ['LL] ['\u017f]"},
        Example{R"(a(?#comment \) )b)", "ab", "[ab]"}, Example{R"([]a]+)", "]a[", "[]a]["},
        Example{R"(\s+(?!\S)|\s+)", "a   b  ", "a[  ][ ]b[  ]"},
        Example{R"(x*)", "axb", "[]a[x]b[]"}),  // empty matches, but not after another
    [](const auto& test) { return "Case" + std::to_string(test.index); });

class RefusedPattern : public ::testing::TestWithParam<const char*> {};

TEST_P(RefusedPattern, IsAnError) {
  EXPECT_THROW(Regex::FromPattern(GetParam()), Error) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Cases, RefusedPattern,
                         ::testing::Values("(", ")", "[", "[a", "\\", "[\\", "a**", "\\p{", "\\pL",
                                           "\\p{NoSuchProperty}", "(?x: a)", "\\Qa\\E", "\\C",
                                           "[[:nothing:]]", "[[:alpha:", "(?#", "\\u12", "[z-a]",
                                           "a&&[", "[a&&", "(?<n>a)\\k<n>"),
                         [](const auto& test) { return "Case" + std::to_string(test.index); });

TEST(Regex, ClassesCannotBeNestedWithoutEnd) {
  EXPECT_THROW(Regex::FromPattern(std::string(1000, '[')), Error);
}

// A search that would take exponentially long is stopped and reported.
TEST(Regex, CatastrophicPatternsFail) {
  const Regex regex = Regex::FromPattern("(?:a+)+$");
  RegexScratch scratch;
  const std::string text = std::string(60, 'a') + "b";
  EXPECT_THROW(regex.Search(text, 0, scratch), Error);
  EXPECT_TRUE(regex.Search("aaa", 0, scratch).has_value());
}

// Groups take stack for each repetition; a million of them must neither crash nor be cut short.
TEST(Regex, LongMatchesOfGroupsWork) {
  const Regex regex = Regex::FromPattern("(?:a|bc)+");
  RegexScratch scratch;
  std::string text;
  for (int i = 0; i < 500'000; ++i) text += "abc";
  const std::optional<Match> match = regex.Search(text, 0, scratch);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->end, text.size());
}

TEST(Regex, LiteralsMatchThemselves) {
  const Regex regex = Regex::FromLiteral("a.b");
  RegexScratch scratch;
  EXPECT_FALSE(regex.Search("axb", 0, scratch));
  EXPECT_EQ(regex.Search("xa.b", 0, scratch)->begin, 1u);
}

}  // namespace
}  // namespace gt::regex_test
