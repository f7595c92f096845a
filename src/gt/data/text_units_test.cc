#include "gt/data/text_units.h"

#include <gtest/gtest.h>

#include <vector>

namespace gt::text_units_test {
namespace {

std::vector<std::string> Units(TextForm form, std::string_view bytes) {
  std::vector<std::string> units;
  while (!bytes.empty()) {
    const auto length = UnitLength(form, bytes, /*complete=*/true);
    if (!length || *length == 0) return {"stuck"};
    units.emplace_back(bytes.substr(0, *length));
    bytes.remove_prefix(*length);
  }
  return units;
}

TEST(TextUnitsTest, LinesAreUnitsOfJsonLines) {
  EXPECT_EQ(Units(TextForm::kJsonl, "{}\n{\"a\": 1}\r\n\nlast"),
            (std::vector<std::string>{"{}\n", "{\"a\": 1}\r\n", "\n", "last"}));
  EXPECT_FALSE(UnitLength(TextForm::kJsonl, "{\"text\"", /*complete=*/false));
}

TEST(TextUnitsTest, PiecesEndWithTheLineInWhichTheyAreLargeEnough) {
  const std::string line = std::string(99, 'x') + "\n";
  std::string text;
  for (int i = 0; i < 200; ++i) text += line;
  const std::vector<std::string> units = Units(TextForm::kText, text);
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0].size(), 8200u);  // 82 lines reach 8192 bytes
  EXPECT_EQ(units[1].size(), 8200u);
  EXPECT_EQ(units[2].size(), 3600u);
  EXPECT_EQ(units[0].back(), '\n');
}

TEST(TextUnitsTest, ALineEndExactlyAtThePieceSizeCounts) {
  std::string text(kPieceBytes - 1, 'x');
  text += "\nmore\n";
  EXPECT_EQ(UnitLength(TextForm::kText, text, true), kPieceBytes);
}

TEST(TextUnitsTest, TextWithoutLinesIsCutBetweenCharacters) {
  std::string text = "x";
  while (text.size() < 3 * kPieceMost) text += "\xE2\x82\xAC";  // a character of three bytes
  const std::vector<std::string> units = Units(TextForm::kText, text);
  EXPECT_GE(units.size(), 3u);
  for (const std::string& unit : units) {
    EXPECT_LE(unit.size(), kPieceMost);
    EXPECT_EQ(static_cast<unsigned char>(unit.back()), 0xAC);
  }
  // Bytes that are no UTF-8 at all are still cut somewhere.
  EXPECT_EQ(Units(TextForm::kText, std::string(kPieceMost + 5, '\x80')).size(), 2u);
}

// Streams decide with what they have; it must be what they would decide with the whole file.
TEST(TextUnitsTest, APartOfTheFileNeverDecidesOtherwise) {
  std::string text = std::string(kPieceBytes + 100, 'x') + "\n" + std::string(kPieceMost, 'y');
  for (const std::size_t cut : {std::size_t{0}, std::size_t{3}, kPieceBytes, kPieceBytes + 1}) {
    const std::string_view bytes = std::string_view(text).substr(cut);
    const auto whole = UnitLength(TextForm::kText, bytes, true);
    for (std::size_t part = 0; part < bytes.size(); part += 61) {
      const auto early = UnitLength(TextForm::kText, bytes.substr(0, part), false);
      if (early) ASSERT_EQ(early, whole) << cut << " " << part;
    }
  }
}

TEST(TextUnitsTest, FindsTheText) {
  EXPECT_EQ(ParseJsonlLine(R"({"text": "a\u00e9\n"})").text, "a\xC3\xA9\n");
  EXPECT_EQ(ParseJsonlLine(R"({"id": 7, "content": "b", "meta": {"text": "no"}})").text, "b");
  EXPECT_EQ(ParseJsonlLine(R"({"content": "b", "text": "a"})").text, "a");
  EXPECT_EQ(ParseJsonlLine(R"({"list": [{"text": "no"}], "text": ""})").text, "");
  EXPECT_EQ(ParseJsonlLine(R"({"text": ""})").problem, "");
  EXPECT_EQ(ParseJsonlLine("\xEF\xBB\xBF{\"text\": \"marked\"}\r\n").text, "marked");
}

std::string ProblemOf(std::string_view line) { return ParseJsonlLine(line).problem; }

TEST(TextUnitsTest, SaysWhatIsWrongWithALine) {
  EXPECT_EQ(ProblemOf(R"({"title": "x"})"), R"(has neither a field "text" nor "content")");
  EXPECT_EQ(ProblemOf(R"({"text": 7})"), R"(has a number in "text", where the text should be)");
  EXPECT_EQ(ProblemOf(R"({"content": null})"),
            R"(has null in "content", where the text should be)");
  EXPECT_EQ(ProblemOf(R"({"text": {"text": "x"}})"),
            R"(has an object in "text", where the text should be)");
  EXPECT_EQ(ProblemOf(R"({"text": ["x"]})"), R"(has an array in "text", where the text should be)");
  EXPECT_TRUE(ProblemOf(R"(["x"])").starts_with("is an array, not an object; each line"));
  EXPECT_TRUE(ProblemOf(R"("x")").starts_with("is a string, not an object"));
  EXPECT_TRUE(ProblemOf(R"({"text": "x)").starts_with("is not JSON (column "));
  EXPECT_TRUE(ProblemOf(R"({"text": "x"} {)").starts_with("is not JSON (column "));
  EXPECT_TRUE(ProblemOf("{\"text\": \"\xFF\"}").starts_with("is not JSON (column "));
  EXPECT_TRUE(ProblemOf("").starts_with("is not JSON"));
}

TEST(TextUnitsTest, DeepNestingIsNoTrouble) {
  const std::string deep =
      R"({"x": )" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + R"(, "text": "a"})";
  EXPECT_EQ(ParseJsonlLine(deep).text, "a");
}

}  // namespace
}  // namespace gt::text_units_test
