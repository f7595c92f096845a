#include "gt/base/byte_stream.h"

#include <gtest/gtest.h>

#include "gt/data/data_test_util.h"

namespace gt::byte_stream_test {
namespace {

using testing::ErrorOf;
using testing::ExpectError;

struct StoredFile {
  std::string path;
  Compression compression;
};

StoredFile FileWith(const testing::DataFolder& folder, const std::string& name,
                    std::string_view bytes, Compression compression) {
  return {folder.Write(name, bytes), compression};
}

std::string ReadAll(const StoredFile& file, std::size_t at_a_time) {
  const auto stream = OpenByteStream(file.path, file.compression);
  std::string all;
  std::string part(at_a_time, '\0');
  while (const std::size_t got = stream->Read(part.data(), part.size())) all.append(part, 0, got);
  EXPECT_EQ(stream->Read(part.data(), part.size()), 0u);  // the end stays the end
  return all;
}

// Compresses well and badly in turns, so that inner buffers fill at odd places.
std::string SampleText() {
  std::string text;
  uint32_t state = 1;
  for (int i = 0; i < 300'000; ++i) {
    state = state * 1664525 + 1013904223;
    text += i % 20'000 < 10'000 ? static_cast<char>(state >> 24) : 'x';
  }
  return text;
}

TEST(ByteStreamTest, PlainFilesReadAsTheyAre) {
  testing::DataFolder folder;
  const std::string text = SampleText();
  const StoredFile file = FileWith(folder, "a", text, Compression::kNone);
  EXPECT_EQ(ReadAll(file, 1000), text);
  EXPECT_EQ(ReadAll(FileWith(folder, "b", "", Compression::kNone), 10), "");
}

TEST(ByteStreamTest, MissingFilesAreNamed) {
  ExpectError(ErrorOf([] { OpenByteStream("/nowhere/a.txt", Compression::kNone); }),
              ErrorCode::kDataUnreadable, {"/nowhere/a.txt", "No such file"});
}

TEST(ByteStreamTest, NamesTellTheCompression) {
  EXPECT_EQ(CompressionOf("a/b.json"), Compression::kNone);
  EXPECT_EQ(CompressionOf("b.json.gz"), Compression::kGzip);
  EXPECT_EQ(CompressionOf("B.TXT.GZ"), Compression::kGzip);
  EXPECT_EQ(CompressionOf("b.zst"), Compression::kZstd);
  EXPECT_EQ(CompressionOf("b.zstd"), Compression::kZstd);
}

struct Format {
  const char* name;
  Compression compression;
  std::string (*compress)(std::string_view);
};

void PrintTo(const Format& format, std::ostream* out) { *out << format.name; }

class CompressedStreamTest : public ::testing::TestWithParam<Format> {
 protected:
  StoredFile Compressed(const std::string& bytes) const {
    return FileWith(folder_, "a", bytes, GetParam().compression);
  }
  testing::DataFolder folder_;
};

TEST_P(CompressedStreamTest, ReadsAtAnyGranularity) {
  const std::string text = SampleText();
  const StoredFile file = Compressed(GetParam().compress(text));
  for (const std::size_t at_a_time : {std::size_t{7}, std::size_t{4096}, std::size_t{1} << 20}) {
    EXPECT_EQ(ReadAll(file, at_a_time), text) << at_a_time;
  }
}

// `cat a.gz b.gz` is a valid file, and parallel compressors write such.
TEST_P(CompressedStreamTest, ReadsSeveralPartsAsOne) {
  const std::string text = SampleText();
  const StoredFile file = Compressed(GetParam().compress("one ") + GetParam().compress("") +
                                     GetParam().compress(text) + GetParam().compress(" end"));
  EXPECT_EQ(ReadAll(file, 1000), "one " + text + " end");
}

TEST_P(CompressedStreamTest, AnEmptyTextIsNoError) {
  EXPECT_EQ(ReadAll(Compressed(GetParam().compress("")), 10), "");
}

TEST_P(CompressedStreamTest, RefusesFilesCutShortAnywhere) {
  const std::string whole = GetParam().compress("a text of some length, and more of it");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const StoredFile file = Compressed(whole.substr(0, length));
    ExpectError(ErrorOf([&] { ReadAll(file, 100); }), ErrorCode::kBadData, {"cut short"});
  }
}

TEST_P(CompressedStreamTest, RefusesDamage) {
  std::string bytes = GetParam().compress(SampleText());
  ExpectError(ErrorOf([&] { ReadAll(Compressed("something else"), 100); }), ErrorCode::kBadData,
              {"not valid"});
  ExpectError(ErrorOf([&] { ReadAll(Compressed(bytes + "something else"), 100); }),
              ErrorCode::kBadData, {"not valid"});
}

#ifdef GT_HAVE_ZLIB
INSTANTIATE_TEST_SUITE_P(Gzip, CompressedStreamTest,
                         ::testing::Values(Format{"gzip", Compression::kGzip, testing::Gzip}));

TEST(ByteStreamTest, GzipChecksItsSum) {
  testing::DataFolder folder;
  std::string bytes = testing::Gzip(SampleText());
  bytes[bytes.size() - 8] ^= 1;
  const StoredFile file = FileWith(folder, "a", bytes, Compression::kGzip);
  ExpectError(ErrorOf([&] { ReadAll(file, 100); }), ErrorCode::kBadData, {"not valid"});
}
#endif
#ifdef GT_HAVE_ZSTD
INSTANTIATE_TEST_SUITE_P(Zstd, CompressedStreamTest,
                         ::testing::Values(Format{"zstd", Compression::kZstd, testing::Zstd}));
#endif

}  // namespace
}  // namespace gt::byte_stream_test
