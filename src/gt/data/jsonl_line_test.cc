#include "gt/data/jsonl_line.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace gt::jsonl_line_test {
namespace {

TEST(JsonlLineTest, FindsTheText) {
  EXPECT_EQ(ParseJsonlLine(R"({"text": "a\u00e9\n"})").text, "a\xC3\xA9\n");
  EXPECT_EQ(ParseJsonlLine(R"({"id": 7, "content": "b", "meta": {"text": "no"}})").text, "b");
  EXPECT_EQ(ParseJsonlLine(R"({"content": "b", "text": "a"})").text, "a");
  EXPECT_EQ(ParseJsonlLine(R"({"list": [{"text": "no"}], "text": ""})").text, "");
  EXPECT_EQ(ParseJsonlLine(R"({"text": ""})").problem, "");
  EXPECT_EQ(ParseJsonlLine("\xEF\xBB\xBF{\"text\": \"marked\"}\r\n").text, "marked");
}

TEST(JsonlLineTest, TheFieldMayBeNamed) {
  const std::string_view line =
      R"({"text": "a", "body": "b", "meta": {"body": "c", "x": [{"y": 1}]}})";
  EXPECT_EQ(ParseJsonlLine(line, "body").text, "b");
  EXPECT_EQ(ParseJsonlLine(line, "meta.body").text, "c");
  EXPECT_EQ(ParseJsonlLine(R"({"meta.body": "dots", "meta": {"body": "c"}})", "meta.body").text,
            "dots");
  EXPECT_EQ(ParseJsonlLine(R"({"a": {"b": {"c": "deep"}, "c": "no"}, "c": "no"})", "a.b.c").text,
            "deep");
  for (const char* broken :
       {R"({"a": ["x"]})", R"({"a": [{"b": "x"}]})", R"({"a": {"c": 1}, "b": "x"})",
        R"({"b": "x", "a": 1})", R"({"a": {"b": ["x"]}})", R"({"a": {"b": {"c": "x"}}})"}) {
    EXPECT_EQ(ParseJsonlLine(broken, "a.b").text, "") << broken;
    EXPECT_NE(ParseJsonlLine(broken, "a.b").problem, "") << broken;
  }
}

std::string ProblemOf(std::string_view line, std::string_view field = "") {
  return ParseJsonlLine(line, field).problem;
}

TEST(JsonlLineTest, SaysWhatIsWrongWithALine) {
  const auto begins = [](std::string_view line, std::string_view begin) {
    EXPECT_TRUE(ProblemOf(line).starts_with(begin)) << ProblemOf(line);
  };
  begins(R"({"title": "x"})", R"(has neither a field "text" nor "content"; its fields are)");
  begins(R"({"text": 7})", R"(has a number in "text", where the text should be; its fields)");
  begins(R"({"content": null})", R"(has null in "content", where the text should be)");
  begins(R"({"text": {"text": "x"}})", R"(has an object in "text", where the text should be)");
  begins(R"({"text": ["x"]})", R"(has an array in "text", where the text should be)");
  begins(R"(["x"])", "is an array, not an object; each line");
  begins(R"("x")", "is a string, not an object");
  begins(R"({"text": "x)", "is not JSON (column ");
  begins(R"({"text": "x"} {)", "is not JSON (column ");
  begins("{\"text\": \"\xFF\"}", "is not JSON (column ");
  begins("", "is not JSON");
  EXPECT_EQ(ProblemOf(R"({"id": 7, "body": "b", "meta": {"lang": "en", "tags": ["x", {"y": 1}]}})",
                      "txt"),
            R"(has no field "txt"; its fields are "id" (a number), "body" (a string), )"
            R"("meta.lang" (a string), "meta.tags" (an array); --training.text_field says which )"
            R"(one holds the text)");
  EXPECT_NE(ProblemOf("{}").find("it has no fields"), std::string::npos);
}

TEST(JsonlLineTest, ListsOfFieldsEndSomewhere) {
  std::string many = "{";
  for (int i = 0; i < 5000; ++i) many += fmt::format("\"key{}\": 1, ", i);
  EXPECT_NE(ProblemOf(many + R"("z": 1})").find("\"key11\" (a number) and 988 more"),
            std::string::npos)
      << ProblemOf(many + R"("z": 1})");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\": ";
  EXPECT_NE(ProblemOf(deep + "1" + std::string(100'000, '}')).find("it has no fields"),
            std::string::npos);
}

TEST(JsonlLineTest, DeepNestingIsNoTrouble) {
  const std::string deep =
      R"({"x": )" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + R"(, "text": "a"})";
  EXPECT_EQ(ParseJsonlLine(deep).text, "a");
}

}  // namespace
}  // namespace gt::jsonl_line_test
