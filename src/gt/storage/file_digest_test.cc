#include "gt/storage/file_digest.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "gt/storage/checksum.h"
#include "gt/testing/temp_folder.h"

namespace gt::file_digest_test {
namespace {

namespace fs = std::filesystem;

class FileDigestTest : public ::testing::Test {
 protected:
  fs::path Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  // A file of zeros that takes no space, with one byte that is none.
  fs::path WriteSparse(const std::string& name, int64_t size, int64_t at) const {
    const fs::path path = Write(name, "");
    fs::resize_file(path, static_cast<uintmax_t>(size));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.put('x');
    return path;
  }
  static FileDigest Digest(const fs::path& path, DigestOf what = DigestOf::kSamples) {
    return DigestFiles(std::vector{path}, what).front();
  }

  testing::TempFolder folder_;
};

TEST_F(FileDigestTest, SmallFilesAreHashedWhole) {
  for (const auto what : {DigestOf::kSamples, DigestOf::kWhole}) {
    for (const std::string& text : {std::string(), std::string("abc"), std::string(100'000, 'a')}) {
      const FileDigest digest = Digest(Write("a", text), what);
      EXPECT_EQ(digest.size, std::ssize(text));
      EXPECT_EQ(digest.hash, Xxh64Of(std::string_view(text)));
    }
  }
}

TEST_F(FileDigestTest, LargeFilesAreSampled) {
  constexpr int64_t kSize = int64_t{3} << 30;
  const FileDigest first = Digest(WriteSparse("first", kSize, 0));
  const FileDigest last = Digest(WriteSparse("last", kSize, kSize - 1));
  const FileDigest between = Digest(WriteSparse("between", kSize, kSize / 2 + 1'000'000));
  EXPECT_EQ(first.size, kSize);
  EXPECT_NE(first.hash, last.hash);
  EXPECT_NE(first.hash, between.hash);
  EXPECT_NE(last.hash, between.hash);
  // A byte between two samples is found by reading everything.
  constexpr int64_t kSmaller = int64_t{8} << 20;
  const fs::path a = WriteSparse("a", kSmaller, 1), b = WriteSparse("b", kSmaller, 1);
  std::fstream(b, std::ios::in | std::ios::out | std::ios::binary).seekp(20'000).put('y');
  EXPECT_EQ(Digest(a).hash, Digest(b).hash) << "no longer a place that is not sampled";
  EXPECT_NE(Digest(a, DigestOf::kWhole).hash, Digest(b, DigestOf::kWhole).hash);
}

TEST_F(FileDigestTest, WhatIsNoFileHasNoDigest) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const fs::path& path : {folder_ / "missing", folder_.path(), folder_ / "pipe"}) {
    EXPECT_EQ(Digest(path).size, -1) << path;
  }
}

// In the order of the paths, however many threads read.
TEST_F(FileDigestTest, ManyFilesKeepTheirOrder) {
  std::vector<fs::path> paths;
  for (int i = 0; i < 300; ++i) {
    paths.push_back(Write("f" + std::to_string(i), std::string(static_cast<size_t>(i), 'a')));
  }
  const std::vector<FileDigest> digests = DigestFiles(paths, DigestOf::kSamples);
  for (size_t i = 0; i < paths.size(); ++i) {
    EXPECT_EQ(digests[i].size, static_cast<int64_t>(i));
    EXPECT_EQ(digests[i].hash, Xxh64Of(std::string_view(std::string(i, 'a'))));
  }
}

}  // namespace
}  // namespace gt::file_digest_test
