#include "gt/base/json_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

namespace gt::json_text_test {
namespace {

std::string Repeated(std::string_view part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

std::string Nested(int levels) { return Repeated("[", levels) + Repeated("]", levels); }

std::string ProblemOf(std::string_view text, const JsonLimits& limits = {}) {
  try {
    ParseJson(text, limits);
  } catch (const BadJson& problem) {
    return problem.what();
  }
  return "";
}

TEST(JsonText, ReadsValues) {
  EXPECT_EQ(ParseJson(R"({"a": [1, "]]]\"[[[", null]})"),
            nlohmann::json({{"a", {1, "]]]\"[[[", nullptr}}}));
}

TEST(JsonText, LimitsDepth) {
  EXPECT_EQ(ProblemOf(Nested(64)), "");
  EXPECT_EQ(ProblemOf("\n " + Nested(65)),
            "line 2, column 66: lists and objects are nested more than 64 levels deep");
  EXPECT_NE(ProblemOf(Nested(10'000'000)), "");
  EXPECT_NE(ProblemOf(Repeated(R"({"a":)", 100'000)), "");
  // Brackets in texts do not nest.
  EXPECT_EQ(ProblemOf('"' + Repeated("[", 1000) + '"'), "");
}

TEST(JsonText, LimitsSizeAndValues) {
  EXPECT_EQ(ProblemOf("[1, 2, 3]", {.bytes = 8}), "9 bytes, but at most 8 are read");
  EXPECT_EQ(ProblemOf("[1, 2]", {.values = 3}), "");
  EXPECT_EQ(ProblemOf("[1, 2]", {.values = 2}), "line 1, column 3: more than 2 values");
  EXPECT_NE(ProblemOf("{\"a\": 1, \"b\": {}, \"c\": []}", {.values = 3}), "");
  EXPECT_EQ(ProblemOf(R"({"a:": 1})", {.keys = 1}), "");
  EXPECT_EQ(ProblemOf(R"({"a": 1, "b": 2})", {.keys = 1}), "line 1, column 13: more than 1 keys");
}

TEST(JsonText, SaysWhatIsWrongAndWhere) {
  EXPECT_TRUE(ProblemOf("{\n  \"a\": nux\n}").starts_with("line 2, column 10: syntax error"));
  EXPECT_TRUE(ProblemOf("").starts_with("line 1, column 1: "));
  EXPECT_EQ(ProblemOf(std::string_view("[1]\0[2]", 7)), "line 1, column 4: there is a zero byte");
  EXPECT_NE(ProblemOf("1e999"), "");
  // The text that cannot be read is not repeated as a whole, nor are its control characters.
  const std::string problem = ProblemOf("[" + std::string(1'000'000, 'x') + "\x1b]");
  EXPECT_LT(problem.size(), 300u);
  EXPECT_EQ(ProblemOf("[\x1b").find('\x1b'), std::string::npos);
}

TEST(JsonText, KeepsOrderWhereItCounts) {
  EXPECT_EQ(ParseOrderedJson(R"({"b": 1, "a": 2})", {}).dump(), R"({"b":1,"a":2})");
}

TEST(JsonText, MayPassOverBadText) {
  EXPECT_EQ(ParseJsonIfGood("[1]"), nlohmann::json({1}));
  EXPECT_EQ(ParseJsonIfGood("[1"), std::nullopt);
  EXPECT_EQ(ParseJsonIfGood(Nested(100'000)), std::nullopt);
}

// A second way to read JSON would be one without limits.
TEST(JsonText, IsTheOnlyReader) {
  const std::filesystem::path root = GT_SOURCE_DIR "/src/gt";
  const std::regex parser(R"(json::(parse|accept)\()");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string name = entry.path().lexically_relative(root).string();
    const bool is_source = name.ends_with(".cc") || name.ends_with(".h");
    const bool is_test = name.ends_with("_test.cc") || name.ends_with("_test_util.h") ||
                         name.starts_with("testing/");
    if (!is_source || is_test || name == "base/json_text.cc") continue;
    std::ifstream file(entry.path());
    std::ostringstream text;
    text << file.rdbuf();
    const std::string content = text.str();
    EXPECT_FALSE(std::regex_search(content, parser)) << name << ": use ParseJson";
  }
}

}  // namespace
}  // namespace gt::json_text_test
