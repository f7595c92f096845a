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

}  // namespace
}  // namespace gt::text_units_test
