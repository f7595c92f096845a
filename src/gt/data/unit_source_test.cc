#include "gt/data/unit_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "gt/data/data_test_util.h"
#include "gt/data/text_units.h"

namespace gt::unit_source_test {
namespace {

using testing::DataFolder;
using testing::ErrorOf;
using testing::ExpectError;

std::unique_ptr<UnitSource> Open(const std::string& path, const UnitOrder& order,
                                 const UnitChoice& choice = {}) {
  const DataFiles files = FindDataFiles({path});
  return files.IsCompressed() ? MakeStreamedSource(files, order, choice)
                              : MakeIndexedSource(files, order, choice);
}

// The units of one epoch.
std::vector<std::string> Epoch(UnitSource& source, int64_t epoch) {
  std::vector<std::string> texts;
  source.Seek({});
  while (true) {
    const Unit unit = source.Next();
    if (unit.place.epoch > epoch) return texts;
    if (unit.place.epoch == epoch) texts.emplace_back(unit.text);
  }
}

std::vector<std::string> Epoch(const std::string& path, const UnitOrder& order, int64_t epoch = 0) {
  return Epoch(*Open(path, order), epoch);
}

// Their texts are numbers.
std::vector<std::string> Documents(int first, int count) {
  std::vector<std::string> documents;
  for (int i = first; i < first + count; ++i) documents.push_back(std::to_string(i));
  return documents;
}

std::string Jsonl(const std::vector<std::string>& documents) {
  std::string lines;
  for (const std::string& document : documents) lines += "{\"text\": \"" + document + "\"}\n";
  return lines;
}

struct Layout {
  const char* name;
  const char* extension;
  std::string (*compress)(std::string_view);
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

std::string AsIs(std::string_view bytes) { return std::string(bytes); }

class UnitSourceTest : public ::testing::TestWithParam<Layout> {
 protected:
  void AddFile(const std::string& name, const std::string& text) {
    folder_.Write(name + GetParam().extension, GetParam().compress(text));
  }
  std::string path() const { return folder_.path(); }

  DataFolder folder_;
};

TEST_P(UnitSourceTest, UnshuffledIsTheOrderOfTheFiles) {
  AddFile("b.jsonl", Jsonl(Documents(6, 4)));
  AddFile("a.jsonl", "\n" + Jsonl(Documents(0, 6)) + "\r\n  \n");
  AddFile("c.jsonl", "");
  EXPECT_EQ(Epoch(path(), {}), Documents(0, 10));
  EXPECT_EQ(Epoch(path(), {}, 3), Documents(0, 10));
}

TEST_P(UnitSourceTest, ShuffledDependsOnSeedAndEpochAlone) {
  AddFile("a.jsonl", Jsonl(Documents(0, 30)));
  AddFile("b.jsonl", Jsonl(Documents(30, 20)));
  const UnitOrder order{.shuffle = true, .seed = 5};
  const auto first = Epoch(path(), order);
  EXPECT_NE(first, Documents(0, 50));
  EXPECT_EQ(Epoch(path(), order), first);
  EXPECT_NE(Epoch(path(), order, 1), first);
  EXPECT_NE(Epoch(path(), {.shuffle = true, .seed = 6}), first);
  auto sorted = first;
  std::sort(sorted.begin(), sorted.end());
  auto all = Documents(0, 50);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(sorted, all);
}

TEST_P(UnitSourceTest, RanksShareTheUnitsAmongThem) {
  AddFile("a.jsonl", Jsonl(Documents(0, 7)));
  AddFile("b.jsonl", Jsonl(Documents(7, 4)));
  for (const bool shuffle : {false, true}) {
    const UnitOrder alone{.shuffle = shuffle, .seed = 1};
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const auto whole = Epoch(path(), alone, epoch);
      for (const int64_t world : {2, 3, 11}) {
        for (int64_t rank = 0; rank < world; ++rank) {
          std::vector<std::string> expected;
          for (auto i = rank; i < std::ssize(whole); i += world) expected.push_back(whole[i]);
          const UnitOrder order{.shuffle = shuffle, .seed = 1, .rank = rank, .world = world};
          EXPECT_EQ(Epoch(path(), order, epoch), expected) << rank << " of " << world;
        }
      }
    }
  }
}

TEST_P(UnitSourceTest, SeekGoesOnAnywhere) {
  AddFile("a.jsonl", Jsonl(Documents(0, 5)));
  AddFile("b.jsonl", Jsonl(Documents(5, 6)));
  AddFile("c.jsonl", Jsonl(Documents(11, 3)));
  for (const bool shuffle : {false, true}) {
    const UnitOrder order{.shuffle = shuffle, .seed = 9, .rank = 1, .world = 2};
    std::vector<std::pair<UnitPlace, std::string>> units;
    const auto source = Open(path(), order);
    for (int i = 0; i < 40; ++i) {
      const Unit unit = source->Next();
      units.emplace_back(unit.place, unit.text);
    }
    const auto other = Open(path(), order);
    for (std::size_t start = units.size() - 4; start-- > 0;) {
      other->Seek(units[start].first);
      for (std::size_t i = start; i < start + 4; ++i) {
        const Unit unit = other->Next();
        EXPECT_EQ(unit.text, units[i].second);
        EXPECT_EQ(unit.place, units[i].first);
      }
    }
  }
}

TEST_P(UnitSourceTest, RefusesPlacesThatDoNotExist) {
  AddFile("a.jsonl", Jsonl(Documents(0, 5)));
  const auto source = Open(path(), {.rank = 1, .world = 2});
  for (const UnitPlace& place : {UnitPlace{.unit = 5}, UnitPlace{.unit = 2}, UnitPlace{.unit = -1},
                                 UnitPlace{.epoch = 3, .unit = 99}}) {
    ExpectError(ErrorOf([&] { source->Seek(place); }), ErrorCode::kCheckpointMismatch,
                {std::to_string(place.unit)});
  }
}

TEST_P(UnitSourceTest, PiecesOfAFileReadInOrderAreOneDocument) {
  std::string text;
  for (int i = 0; text.size() < 5 * kPieceBytes; ++i) text += "line " + std::to_string(i) + "\n";
  AddFile("a.txt", "\xEF\xBB\xBF" + text);
  AddFile("b.txt", "short");
  const auto flags = [&](const UnitOrder& order) {
    const auto source = Open(path(), order);
    std::string seen;
    for (Unit unit = source->Next(); unit.place.epoch == 0; unit = source->Next()) {
      seen += unit.starts_document ? "[" : "";
      seen += "x";
      seen += unit.ends_document ? "]" : "";
    }
    return seen;
  };
  EXPECT_EQ(flags({}), "[xxxxx][x]");
  EXPECT_EQ(flags({.shuffle = true}), "[x][x][x][x][x][x]");
  EXPECT_EQ(flags({.world = 2}), "[x][x][x]");
  std::string joined;
  for (const std::string& unit : Epoch(path(), {})) joined += unit;
  EXPECT_EQ(joined, text + "short");
}

UnitChoice PartOf(DataPart part, double held_out = 0.4) {
  return {.split = {.held_out = held_out, .part = part}, .text_field = ""};
}

// By content alone: ranks, order and seed divide the same documents in another way, or not at all.
TEST_P(UnitSourceTest, PartsHaveTheSameUnitsInAnyOrder) {
  AddFile("a.jsonl", Jsonl(Documents(0, 17)) + "\n  \n" + Jsonl(Documents(17, 20)));
  AddFile("b.jsonl", Jsonl(Documents(37, 4)));
  std::vector<std::string> expected;
  for (const std::string& document : Documents(0, 41)) {
    const bool is_held_out =
        PartOf(DataPart::kHeldOut).split.HasText("{\"text\": \"" + document + "\"}");
    if (is_held_out) expected.push_back(document);
  }
  EXPECT_GT(expected.size(), 5u);
  EXPECT_EQ(Epoch(*Open(path(), {}, PartOf(DataPart::kHeldOut)), 1), expected);
  std::sort(expected.begin(), expected.end());
  for (const int64_t world : {1, 3}) {
    std::vector<std::string> all;
    for (int64_t rank = 0; rank < world; ++rank) {
      const UnitOrder order{
          .shuffle = true, .seed = static_cast<uint64_t>(world), .rank = rank, .world = world};
      const auto part = Epoch(*Open(path(), order, PartOf(DataPart::kHeldOut)), 0);
      all.insert(all.end(), part.begin(), part.end());
      for (const std::string& text : Epoch(*Open(path(), order, PartOf(DataPart::kTraining)), 2)) {
        EXPECT_FALSE(std::binary_search(expected.begin(), expected.end(), text)) << text;
      }
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, expected);
  }
}

// What surrounds a piece that is held out did not follow one another.
TEST_P(UnitSourceTest, AHeldOutPieceEndsADocument) {
  std::string text;
  for (int i = 0; text.size() < 30 * kPieceBytes; ++i) text += "line " + std::to_string(i) + "\n";
  AddFile("a.txt", text);
  const auto whole = Epoch(path(), {});
  for (const DataPart part : {DataPart::kTraining, DataPart::kHeldOut}) {
    std::string expected, seen;
    const UnitChoice choice = PartOf(part);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (!choice.split.HasText(whole[i])) continue;
      expected += i == 0 || !choice.split.HasText(whole[i - 1]) ? "[" : "";
      expected += "x";
      expected += i + 1 == whole.size() || !choice.split.HasText(whole[i + 1]) ? "]" : "";
    }
    const auto source = Open(path(), {}, choice);
    for (Unit unit = source->Next(); unit.place.epoch == 0; unit = source->Next()) {
      seen += unit.starts_document ? "[" : "";
      seen += "x";
      seen += unit.ends_document ? "]" : "";
    }
    EXPECT_EQ(seen, expected);
    EXPECT_NE(seen.find("]["), std::string::npos);
  }
}

TEST_P(UnitSourceTest, PartsCanBeEnteredAnywhere) {
  AddFile("a.jsonl", Jsonl(Documents(0, 25)));
  AddFile("b.jsonl", Jsonl(Documents(25, 16)));
  const UnitOrder order{.shuffle = true, .seed = 9, .rank = 1, .world = 2};
  std::vector<std::pair<UnitPlace, std::string>> units;
  const auto source = Open(path(), order, PartOf(DataPart::kTraining));
  for (int i = 0; i < 60; ++i) {
    const Unit unit = source->Next();
    units.emplace_back(unit.place, unit.text);
  }
  const auto other = Open(path(), order, PartOf(DataPart::kTraining));
  for (std::size_t start = units.size(); start-- > 0;) {
    other->Seek(units[start].first);
    EXPECT_EQ(other->Next().text, units[start].second);
  }
}

TEST_P(UnitSourceTest, SamplesAreTakenFromAllOfTheData) {
  AddFile("a.jsonl", Jsonl(Documents(0, 500)) + "{}\n");
  AddFile("b.jsonl", Jsonl(Documents(500, 500)));
  const auto source = Open(path(), {});
  const UnitSample all = source->Sample(1 << 20);
  EXPECT_EQ(all.texts.size(), 1000u);
  EXPECT_EQ(all.units, 1001);
  EXPECT_TRUE(all.units_are_counted);
  EXPECT_FALSE(all.is_everything);  // a line has no text
  const UnitSample some = source->Sample(2000);
  EXPECT_LT(some.texts.size(), 300u);
  EXPECT_TRUE(some.texts.back().file.find("b.jsonl") != std::string::npos);
  EXPECT_FALSE(some.is_everything);
  EXPECT_EQ(some.units, 1001);
  EXPECT_EQ(source->Next().text, "0");
}

TEST_P(UnitSourceTest, LongTextsCountByTheirBeginnings) {
  std::string euros;
  for (int i = 0; i < 20'000; ++i) euros += "\xE2\x82\xAC";
  AddFile("a.jsonl", Jsonl({euros, euros}));
  const UnitSample sample = Open(path(), {})->Sample(20'000);
  for (const UnitSample::Text& text : sample.texts) {
    EXPECT_EQ(text.text.size() % 3, 0u);
    EXPECT_NEAR(text.bytes, static_cast<double>(text.text.size()), 12);
  }
}

TEST_P(UnitSourceTest, BrokenLinesAreNamedByFileAndLine) {
  AddFile("a.jsonl", "{\"text\": \"x\"}\n\n{\"title\": \"x\"}\n");
  ExpectError(ErrorOf([&] { Epoch(path(), {}); }), ErrorCode::kBadData,
              {"a.jsonl", ":3: the line has neither"});
}

TEST_P(UnitSourceTest, TooLittleDataIsAnErrorWithTheNumbers) {
  AddFile("a.jsonl", Jsonl(Documents(0, 2)));
  ExpectError(ErrorOf([&] { Epoch(path(), {.rank = 2, .world = 3}); }), ErrorCode::kDataUnreadable,
              {"2 documents", "3 ranks"});
  AddFile("a.jsonl", "\n \n");
  ExpectError(ErrorOf([&] { Epoch(path(), {}); }), ErrorCode::kDataUnreadable, {"empty"});
}

INSTANTIATE_TEST_SUITE_P(Plain, UnitSourceTest, ::testing::Values(Layout{"plain", "", AsIs}));
#ifdef GT_HAVE_ZLIB
INSTANTIATE_TEST_SUITE_P(Gzip, UnitSourceTest,
                         ::testing::Values(Layout{"gzip", ".gz", testing::Gzip}));

// Several blocks in a file: units are shuffled within each, and every place can be entered.
TEST(StreamedSourceTest, ShufflesWithinBlocks) {
  DataFolder folder;
  const int count = 2 * static_cast<int>(kBlockUnits) + 100;
  const std::string path = folder.Write("a.jsonl.gz", testing::Gzip(Jsonl(Documents(0, count))));
  const UnitOrder order{.shuffle = true, .seed = 1};
  const auto source = Open(path, order);
  std::vector<std::pair<UnitPlace, int64_t>> units;
  for (int i = 0; i < count; ++i) {
    const Unit unit = source->Next();
    EXPECT_EQ(unit.place.unit, i);
    const int64_t document = std::stoll(std::string(unit.text));
    EXPECT_EQ(document / kBlockUnits, i / kBlockUnits);
    units.emplace_back(unit.place, document);
  }
  for (const int start : {0, 1, 4095, 4096, 4097, 8191, 8192, count - 1}) {
    source->Seek(units[start].first);
    EXPECT_EQ(std::stoll(std::string(source->Next().text)), units[start].second);
  }
  // The blocks are shuffled differently from each other.
  std::set<int64_t> offsets;
  for (int i = 0; i < 20; ++i) offsets.insert(units[4096 + i].second - units[i].second);
  EXPECT_GT(offsets.size(), 15u);
}

TEST(StreamedSourceTest, PlainAndCompressedFilesMayBeMixed) {
  DataFolder folder;
  folder.Write("a.jsonl.gz", testing::Gzip(Jsonl(Documents(0, 3))));
  folder.Write("b.jsonl", Jsonl(Documents(3, 3)));
  EXPECT_EQ(Epoch(folder.path(), {}), Documents(0, 6));
}

// A line that is longer than every buffer.
TEST(StreamedSourceTest, LongLinesAreReadWhole) {
  DataFolder folder;
  const std::string large(3'000'000, 'x');
  const std::string path =
      folder.Write("a.jsonl.gz", testing::Gzip(Jsonl({"first", large, "last"})));
  EXPECT_EQ(Epoch(path, {}), (std::vector<std::string>{"first", large, "last"}));
}
#endif

}  // namespace
}  // namespace gt::unit_source_test
