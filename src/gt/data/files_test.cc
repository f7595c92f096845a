#include "gt/data/files.h"

#include <gtest/gtest.h>

#include "gt/data/data_test_util.h"

namespace gt::files_test {
namespace {

using testing::ErrorOf;
using testing::ExpectError;

std::vector<std::string> Names(const DataFiles& files) {
  std::vector<std::string> names;
  for (const DataFile& file : files.files) names.push_back(file.name);
  return names;
}

DataFiles Find(const std::string& path) { return FindDataFiles({path}); }

DataKind KindOf(const testing::DataFolder& folder, const std::string& name) {
  return Find(folder.Write(name, "x")).kind;
}

TEST(FilesTest, NamesSayWhatFilesHold) {
  testing::DataFolder folder;
  EXPECT_EQ(KindOf(folder, "a.txt"), DataKind::kText);
  EXPECT_EQ(KindOf(folder, "a.md"), DataKind::kText);
  EXPECT_EQ(KindOf(folder, "a.jsonl"), DataKind::kJsonl);
  EXPECT_EQ(KindOf(folder, "a.json"), DataKind::kJsonl);
  EXPECT_EQ(KindOf(folder, "a.JSONL.gz"), DataKind::kJsonl);
  EXPECT_EQ(KindOf(folder, "a.txt.zst"), DataKind::kText);
  EXPECT_EQ(KindOf(folder, "a.npy"), DataKind::kNpy);
  EXPECT_EQ(KindOf(folder, "a.bin"), DataKind::kBin);
  EXPECT_EQ(KindOf(folder, "LICENSE"), DataKind::kText);
  EXPECT_EQ(KindOf(folder, "a.cc"), DataKind::kText);
  EXPECT_EQ(Find(folder.Write("b.jsonl.gz", "x")).files[0].compression, Compression::kGzip);
}

TEST(FilesTest, FoldersAreWalkedInTheOrderOfNames) {
  testing::DataFolder folder;
  folder.Write("b.txt", "12");
  folder.Write("a/z.md", "123");
  folder.Write("a/y/x.txt", "1");
  folder.Write(".hidden.txt", "1");
  folder.Write(".git/a.txt", "1");
  folder.Write("a/.cache/a.npy", "1");
  const DataFiles files = Find(folder.path());
  EXPECT_EQ(Names(files), (std::vector<std::string>{"a/y/x.txt", "a/z.md", "b.txt"}));
  EXPECT_EQ(files.TotalSize(), 6);
  EXPECT_EQ(Find(folder.path() + "/").name, files.name);
}

TEST(FilesTest, SidecarsAreNoData) {
  testing::DataFolder folder;
  const std::string a = folder.Write("a.bin", "12");
  folder.Write("a.json", "{}");
  const std::string b = folder.Write("b.bin", "12");
  folder.Write("b.bin.json", "{}");
  EXPECT_EQ(Names(Find(folder.path())), (std::vector<std::string>{"a.bin", "b.bin"}));
  EXPECT_EQ(SidecarOf(a).filename(), "a.json");
  EXPECT_EQ(SidecarOf(b).filename(), "b.bin.json");
  EXPECT_TRUE(SidecarOf(folder.Write("c.bin", "12")).empty());
}

TEST(FilesTest, MixedKindsAreListed) {
  testing::DataFolder folder;
  folder.Write("a.txt", "x");
  folder.Write("b.jsonl", "x");
  folder.Write("c.jsonl.gz", "x");
  ExpectError(ErrorOf([&] { Find(folder.path()); }), ErrorCode::kBadData,
              {"several kinds", "text (a.txt)", "JSON lines (b.jsonl, c.jsonl.gz)"});
}

TEST(FilesTest, UnknownNamesInFoldersAreListedUpToALimit) {
  testing::DataFolder folder;
  folder.Write("a.txt", "x");
  for (int i = 10; i < 22; ++i) folder.Write(fmt::format("part{}.parquet", i), "x");
  ExpectError(ErrorOf([&] { Find(folder.path()); }), ErrorCode::kBadData,
              {"part10.parquet, part11.parquet", "and 4 more"});
}

TEST(FilesTest, NothingToReadIsAnError) {
  testing::DataFolder folder;
  ExpectError(ErrorOf([&] { Find(folder.path()); }), ErrorCode::kDataUnreadable,
              {folder.path(), "no data files"});
  ExpectError(ErrorOf([&] { Find(folder.path() + "/x"); }), ErrorCode::kDataUnreadable,
              {folder.path() + "/x"});
  ExpectError(ErrorOf([&] { Find(""); }), ErrorCode::kDataUnreadable, {});
  ExpectError(ErrorOf([&] { Find("/dev/null"); }), ErrorCode::kDataUnreadable, {"regular file"});
  ExpectError(ErrorOf([&] { Find(folder.Write("a.npy.gz", "x")); }), ErrorCode::kBadData,
              {"decompress"});
}

TEST(FilesTest, BinaryFilesAreNotTakenForText) {
  testing::DataFolder folder;
  ExpectError(ErrorOf([&] { Find(folder.Write("a.parquet", std::string("PAR1\0x", 6))); }),
              ErrorCode::kBadData, {"a.parquet", "not text"});
  EXPECT_EQ(KindOf(folder, "b.parquet"), DataKind::kText);  // the name alone is no reason
}

TEST(FilesTest, FingerprintsTellNamesAndSizes) {
  testing::DataFolder folder;
  const auto fingerprint = [&](const std::string& name, const std::string& bytes) {
    return Find(folder.Write(name, bytes)).Fingerprint();
  };
  const uint64_t first = fingerprint("a.txt", "x");
  EXPECT_EQ(fingerprint("elsewhere/a.txt", "y"), first);  // data may be moved
  EXPECT_NE(fingerprint("a.txt", "xy"), first);
  EXPECT_NE(fingerprint("b.txt", "x"), first);
}

class DataLists : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"b.txt", "a.txt", "c.jsonl", "sub/a.txt", "sub/deep/d.txt", ".h.txt"}) {
      folder_.Write(name, "12");
    }
  }
  std::string In(const std::string& name) const { return folder_.path() + "/" + name; }
  std::vector<std::string> NamesOf(const std::vector<std::string>& items) const {
    std::vector<std::string> given = items;
    for (std::string& item : given) item = In(item);
    return Names(FindDataFiles(given));
  }
  std::string ErrorFor(const std::string& item) const {
    return ErrorOf([&] { FindDataFiles({In(item)}); });
  }

  testing::DataFolder folder_;
};

using List = std::vector<std::string>;

TEST_F(DataLists, AreReadInTheOrderGiven) {
  EXPECT_EQ(NamesOf({"b.txt", "a.txt"}), (List{"b.txt", "a.txt"}));
  EXPECT_EQ(NamesOf({"sub", "a.txt"}), (List{"a.txt", "deep/d.txt", "a.txt"}));
  const DataFiles files = FindDataFiles({In("b.txt"), In("sub")});
  EXPECT_EQ(files.name, "b.txt and 1 more");
  EXPECT_EQ(files.TotalSize(), 6);
  EXPECT_NE(files.Fingerprint(), FindDataFiles({In("sub"), In("b.txt")}).Fingerprint());
}

TEST_F(DataLists, NameAFileOnce) {
  EXPECT_EQ(NamesOf({"b.txt", "./b.txt", "sub/../b.txt", "*.txt"}), (List{"b.txt", "a.txt"}));
  EXPECT_EQ(NamesOf({"sub", "**/a.txt"}), (List{"a.txt", "deep/d.txt", "a.txt"}));
  std::filesystem::create_directory_symlink(In("sub"), In("linked"));
  EXPECT_EQ(NamesOf({"sub", "linked"}), (List{"a.txt", "deep/d.txt"}));
}

TEST_F(DataLists, PatternsAreExpandedInTheOrderOfNames) {
  EXPECT_EQ(NamesOf({"*.txt"}), (List{"a.txt", "b.txt"}));
  EXPECT_EQ(NamesOf({"**/*.txt"}), (List{"a.txt", "b.txt", "sub/a.txt", "sub/deep/d.txt"}));
  EXPECT_EQ(NamesOf({"s*"}), (List{"sub/a.txt", "sub/deep/d.txt"}));  // a folder, as if named
  EXPECT_EQ(FindDataFiles({In("*.txt")}).name, "*.txt");
}

// A run goes on when its folder is written as a pattern.
TEST_F(DataLists, APatternNamesFilesAsItsFolderDoes) {
  std::filesystem::remove(In("c.jsonl"));
  EXPECT_EQ(FindDataFiles({In("**/*.txt")}).Fingerprint(), Find(folder_.path()).Fingerprint());
  EXPECT_EQ(FindDataFiles({In("**")}).Fingerprint(), Find(folder_.path()).Fingerprint());
  EXPECT_EQ(FindDataFiles({In("a*.txt")}).Fingerprint(), Find(In("a.txt")).Fingerprint());
}

TEST_F(DataLists, WhatExistsIsTakenLiterally) {
  folder_.Write("x[1].txt", "literal");
  folder_.Write("x1.txt", "match");
  folder_.Write("a,b.txt", "comma");
  EXPECT_EQ(NamesOf({"x[1].txt"}), List{"x[1].txt"});
  EXPECT_EQ(NamesOf({"x[1-2].txt"}), List{"x1.txt"});
  EXPECT_EQ(NamesOf({"a,b.txt"}), List{"a,b.txt"});
}

TEST_F(DataLists, CommasSeparateWhatExists) {
  EXPECT_EQ(Names(Find(In("b.txt") + ", " + In("sub/*.txt"))), (List{"b.txt", "a.txt"}));
  ExpectError(ErrorOf([&] { Find(In("b.txt") + "," + In("x.txt")); }), ErrorCode::kDataUnreadable,
              {In("b.txt") + "," + In("x.txt"), "nothing is called '" + In("x.txt")});
}

TEST_F(DataLists, WhatMatchesNothingIsNamedWithWhatIsNear) {
  ExpectError(ErrorFor("*.josnl"), ErrorCode::kDataUnreadable,
              {"no file matches the pattern '" + In("*.josnl"), "what is there: " + In("c.jsonl")});
  ExpectError(ErrorFor("sub/x*/y.txt"), ErrorCode::kDataUnreadable, {In("sub/deep")});
  ExpectError(ErrorFor("dub/*.txt"), ErrorCode::kDataUnreadable,
              {"there is no folder '" + In("dub") + "'; did you mean " + In("sub")});
  ExpectError(ErrorFor("a.tx"), ErrorCode::kDataUnreadable,
              {"no file or folder", "did you mean " + In("a.txt")});
  std::filesystem::create_directory(In("empty"));
  ExpectError(ErrorFor("empty/*"), ErrorCode::kDataUnreadable, {"nothing in '" + In("empty")});
  ExpectError(ErrorFor("emp*"), ErrorCode::kDataUnreadable, {"no file matches"});
}

TEST_F(DataLists, AreOfOneKind) {
  ExpectError(ErrorFor("?.*"), ErrorCode::kBadData,
              {"several kinds", "text (a.txt, b.txt)", "JSON lines (c.jsonl)"});
  folder_.Write("t/a.bin", "12");
  folder_.Write("t/a.bin.json", "{}");
  EXPECT_EQ(NamesOf({"t/*"}), List{"a.bin"});  // a sidecar is no data
}

}  // namespace
}  // namespace gt::files_test
