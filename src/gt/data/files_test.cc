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

DataKind KindOf(const testing::DataFolder& folder, const std::string& name) {
  return FindDataFiles(folder.Write(name, "x")).kind;
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
  EXPECT_EQ(FindDataFiles(folder.Write("b.jsonl.gz", "x")).files[0].compression,
            Compression::kGzip);
}

TEST(FilesTest, FoldersAreWalkedInTheOrderOfNames) {
  testing::DataFolder folder;
  folder.Write("b.txt", "12");
  folder.Write("a/z.md", "123");
  folder.Write("a/y/x.txt", "1");
  folder.Write(".hidden.txt", "1");
  folder.Write(".git/a.txt", "1");
  folder.Write("a/.cache/a.npy", "1");
  const DataFiles files = FindDataFiles(folder.path());
  EXPECT_EQ(Names(files), (std::vector<std::string>{"a/y/x.txt", "a/z.md", "b.txt"}));
  EXPECT_EQ(files.TotalSize(), 6);
  EXPECT_EQ(FindDataFiles(folder.path() + "/").name, files.name);
}

TEST(FilesTest, SidecarsAreNoData) {
  testing::DataFolder folder;
  const std::string a = folder.Write("a.bin", "12");
  folder.Write("a.json", "{}");
  const std::string b = folder.Write("b.bin", "12");
  folder.Write("b.bin.json", "{}");
  EXPECT_EQ(Names(FindDataFiles(folder.path())), (std::vector<std::string>{"a.bin", "b.bin"}));
  EXPECT_EQ(SidecarOf(a).filename(), "a.json");
  EXPECT_EQ(SidecarOf(b).filename(), "b.bin.json");
  EXPECT_TRUE(SidecarOf(folder.Write("c.bin", "12")).empty());
}

TEST(FilesTest, MixedKindsAreListed) {
  testing::DataFolder folder;
  folder.Write("a.txt", "x");
  folder.Write("b.jsonl", "x");
  folder.Write("c.jsonl.gz", "x");
  ExpectError(ErrorOf([&] { FindDataFiles(folder.path()); }), ErrorCode::kBadData,
              {"several kinds", "text (a.txt)", "JSON lines (b.jsonl, c.jsonl.gz)"});
}

TEST(FilesTest, UnknownNamesInFoldersAreListedUpToALimit) {
  testing::DataFolder folder;
  folder.Write("a.txt", "x");
  for (int i = 10; i < 22; ++i) folder.Write(fmt::format("part{}.parquet", i), "x");
  ExpectError(ErrorOf([&] { FindDataFiles(folder.path()); }), ErrorCode::kBadData,
              {"part10.parquet, part11.parquet", "and 4 more"});
}

TEST(FilesTest, NothingToReadIsAnError) {
  testing::DataFolder folder;
  ExpectError(ErrorOf([&] { FindDataFiles(folder.path()); }), ErrorCode::kDataUnreadable,
              {folder.path(), "no data files"});
  ExpectError(ErrorOf([&] { FindDataFiles(folder.path() + "/x"); }), ErrorCode::kDataUnreadable,
              {folder.path() + "/x"});
  ExpectError(ErrorOf([&] { FindDataFiles(""); }), ErrorCode::kDataUnreadable, {});
  ExpectError(ErrorOf([&] { FindDataFiles("/dev/null"); }), ErrorCode::kDataUnreadable,
              {"regular file"});
  ExpectError(ErrorOf([&] { FindDataFiles(folder.Write("a.npy.gz", "x")); }), ErrorCode::kBadData,
              {"decompress"});
}

TEST(FilesTest, BinaryFilesAreNotTakenForText) {
  testing::DataFolder folder;
  ExpectError(ErrorOf([&] { FindDataFiles(folder.Write("a.parquet", std::string("PAR1\0x", 6))); }),
              ErrorCode::kBadData, {"a.parquet", "not text"});
  EXPECT_EQ(KindOf(folder, "b.parquet"), DataKind::kText);  // the name alone is no reason
}

TEST(FilesTest, FingerprintsTellNamesAndSizes) {
  testing::DataFolder folder;
  const auto fingerprint = [&](const std::string& name, const std::string& bytes) {
    return FindDataFiles(folder.Write(name, bytes)).Fingerprint();
  };
  const uint64_t first = fingerprint("a.txt", "x");
  EXPECT_EQ(fingerprint("elsewhere/a.txt", "y"), first);  // data may be moved
  EXPECT_NE(fingerprint("a.txt", "xy"), first);
  EXPECT_NE(fingerprint("b.txt", "x"), first);
}

}  // namespace
}  // namespace gt::files_test
