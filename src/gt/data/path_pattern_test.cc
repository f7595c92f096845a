#include "gt/data/path_pattern.h"

#include <gtest/gtest.h>

#include "gt/data/data_test_util.h"

namespace gt::path_pattern_test {
namespace {

class PathPatternTest : public ::testing::Test {
 protected:
  void Make(const std::vector<std::string>& names) {
    for (const std::string& name : names) folder_.Write(name, "");
  }

  // Below the folder, joined by spaces.
  std::string Matches(const std::string& pattern) const {
    std::string names;
    for (const auto& path : MatchesOf(folder_.path() + "/" + pattern)) {
      names += (names.empty() ? "" : " ") + path.lexically_relative(folder_.path()).string();
    }
    return names;
  }

  testing::DataFolder folder_;
};

TEST_F(PathPatternTest, KnowsItsCharacters) {
  EXPECT_FALSE(IsPathPattern("a/b.txt"));
  EXPECT_TRUE(IsPathPattern("a/*"));
  EXPECT_TRUE(IsPathPattern("a?"));
  EXPECT_TRUE(IsPathPattern("[ab]/c"));
}

TEST_F(PathPatternTest, MatchesWithinAName) {
  Make({"a.txt", "b.txt", "ab.txt", "a.md", "sub/a.txt"});
  EXPECT_EQ(Matches("*.txt"), "a.txt ab.txt b.txt");
  EXPECT_EQ(Matches("?.txt"), "a.txt b.txt");
  EXPECT_EQ(Matches("[!a].txt"), "b.txt");
  EXPECT_EQ(Matches("[a-b].*"), "a.md a.txt b.txt");
  EXPECT_EQ(Matches("*/a.txt"), "sub/a.txt");
  EXPECT_EQ(Matches("sub"), "sub");
  EXPECT_EQ(Matches("*.json"), "");
  EXPECT_EQ(Matches("a.txt/*"), "");  // below a file there is nothing
}

TEST_F(PathPatternTest, TwoStarsStandForAnyDepth) {
  Make({"a.txt", "x/a.txt", "x/y/a.txt", "x/y/b.txt", "x/y/z/c.md"});
  EXPECT_EQ(Matches("**/a.txt"), "a.txt x/a.txt x/y/a.txt");
  EXPECT_EQ(Matches("x/**/*.txt"), "x/a.txt x/y/a.txt x/y/b.txt");
  EXPECT_EQ(Matches("**/y/*"), "x/y/a.txt x/y/b.txt x/y/z");
  EXPECT_EQ(Matches("**/**/b.txt"), "x/y/b.txt");
  EXPECT_EQ(Matches("x/**"), "x");  // all below it
  EXPECT_EQ(Matches("**/"), ".");
}

TEST_F(PathPatternTest, WhatIsHiddenIsMatchedByADotAlone) {
  Make({".a.txt", "b.txt", ".git/c.txt"});
  EXPECT_EQ(Matches("*.txt"), "b.txt");
  EXPECT_EQ(Matches("**/*.txt"), "b.txt");
  EXPECT_EQ(Matches(".*.txt"), ".a.txt");
  EXPECT_EQ(Matches(".git/*"), ".git/c.txt");
}

TEST_F(PathPatternTest, BackslashesMakeCharactersPlain) {
  Make({"a*.txt", "ab.txt"});
  EXPECT_EQ(Matches("a\\*.txt"), "a*.txt");
  Make({"x*/1.txt", "xy/1.txt"});
  EXPECT_EQ(Matches("x\\*/?.txt"), "x*/1.txt");
}

TEST_F(PathPatternTest, ASlashAtTheEndMeansFolders) {
  Make({"a/1.txt", "b"});
  EXPECT_EQ(Matches("*"), "a b");
  EXPECT_EQ(Matches("*/"), "a");
}

TEST_F(PathPatternTest, LinksAreFollowed) {
  Make({"a/1.txt"});
  std::filesystem::create_directory_symlink("a", folder_.path() + "/link");
  EXPECT_EQ(Matches("**/*.txt"), "a/1.txt link/1.txt");
  std::filesystem::create_directory_symlink(".", folder_.path() + "/circle");
  EXPECT_THROW(Matches("**/*.txt"), std::filesystem::filesystem_error);
}

TEST_F(PathPatternTest, NearMissesAreThoseOfTheFoldersWhereTheSearchEnded) {
  Make({"data/a.jsonl", "data/b.txt", "other/a.json"});
  const auto near = NearMissesOf(folder_.path() + "/data/*.jsnol");
  ASSERT_EQ(near.size(), 2u);
  EXPECT_EQ(near[0].filename(), "a.jsonl");
  EXPECT_EQ(NearMissesOf(folder_.path() + "/dta/*")[0].filename(), "data");
  EXPECT_EQ(NearMissesOf(folder_.path() + "/*/x*/y").size(), 3u);
}

TEST_F(PathPatternTest, TheFixedPartIsBeforeTheFirstPattern) {
  EXPECT_EQ(FixedPart("a/b/*.txt"), "a/b");
  EXPECT_EQ(FixedPart("/a/**/b"), "/a");
  EXPECT_EQ(FixedPart("*.txt"), "");
  EXPECT_EQ(FixedPart("../a*/b"), "..");
}

}  // namespace
}  // namespace gt::path_pattern_test
