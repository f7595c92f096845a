#include "gt/data/token_file.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "gt/data/data_test_util.h"

namespace gt::token_file_test {
namespace {

using testing::ErrorOf;
using testing::ExpectError;
using testing::Npy;
using testing::RawBytes;

TokenFile Open(const std::string& path, int64_t vocab_size = 1000) {
  const DataFiles files = FindDataFiles({path});
  return TokenFile(files.files[0], files.kind, vocab_size);
}

std::vector<int64_t> ReadAll(const TokenFile& file, int64_t vocab_size = 1000) {
  std::vector<int64_t> tokens(static_cast<std::size_t>(file.size()));
  file.Read(0, file.size(), vocab_size, tokens.data());
  return tokens;
}

std::vector<int64_t> Counting(int64_t count) {
  std::vector<int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

template <typename T>
std::vector<T> As(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

template <typename T>
std::vector<int64_t> ThroughNpy(const testing::DataFolder& folder, std::string_view descr) {
  const std::string data = RawBytes(As<T>(Counting(100)));
  return ReadAll(Open(folder.Write("a.npy", Npy(descr, "(100,)", data))));
}

TEST(TokenFileTest, ReadsEveryTypeOfNpy) {
  testing::DataFolder folder;
  EXPECT_EQ(ThroughNpy<uint8_t>(folder, "|u1"), Counting(100));
  EXPECT_EQ(ThroughNpy<uint16_t>(folder, "<u2"), Counting(100));
  EXPECT_EQ(ThroughNpy<uint32_t>(folder, "<u4"), Counting(100));
  EXPECT_EQ(ThroughNpy<uint64_t>(folder, "<u8"), Counting(100));
  EXPECT_EQ(ThroughNpy<int16_t>(folder, "<i2"), Counting(100));
  EXPECT_EQ(ThroughNpy<int32_t>(folder, "<i4"), Counting(100));
  EXPECT_EQ(ThroughNpy<int64_t>(folder, "<i8"), Counting(100));
}

TEST(TokenFileTest, ReadsWhatNumPyWrote) {
  const TokenFile file = Open(GT_SOURCE_DIR "/tests/data/rows.npy");
  EXPECT_EQ(file.row_width(), 5);
  EXPECT_EQ(ReadAll(file)[29], 29 * 7);
}

TEST(TokenFileTest, RawFilesAreAsWideAsTheVocabularyNeeds) {
  testing::DataFolder folder;
  std::vector<int64_t> numbers = Counting(100);
  const std::string narrow = folder.Write("a.bin", RawBytes(As<uint16_t>(numbers)));
  EXPECT_EQ(ReadAll(Open(narrow, 65536)), numbers);
  numbers[7] = 70000;
  const std::string wide = folder.Write("b.bin", RawBytes(As<uint32_t>(numbers)));
  EXPECT_EQ(ReadAll(Open(wide, 65537), 80000), numbers);
}

TEST(TokenFileTest, RawFilesWithZeroUpperHalvesAreWider) {
  testing::DataFolder folder;
  const std::vector<int64_t> numbers = Counting(100);
  EXPECT_EQ(Open(folder.Write("a.bin", RawBytes(As<uint32_t>(numbers)))).type(),
            TokenType::kUint32);
  EXPECT_EQ(Open(folder.Write("b.bin", RawBytes(numbers))).type(), TokenType::kUint64);
  EXPECT_EQ(Open(folder.Write("c.bin", RawBytes(numbers)), 100'000).type(), TokenType::kUint64);
  // Too few to tell, and nothing but zeros: as the vocabulary says.
  EXPECT_EQ(Open(folder.Write("d.bin", RawBytes(As<uint32_t>(Counting(63))))).type(),
            TokenType::kUint16);
  EXPECT_EQ(Open(folder.Write("e.bin", std::string(4096, '\0'))).type(), TokenType::kUint16);
}

TEST(TokenFileTest, ASidecarDecides) {
  testing::DataFolder folder;
  const std::string path = folder.Write("a.bin", RawBytes(As<uint32_t>(Counting(100))));
  folder.Write("a.json", R"({"dtype": "uint16", "shape": [20, 10]})");
  EXPECT_EQ(Open(path).type(), TokenType::kUint16);
  EXPECT_EQ(Open(path).row_width(), 10);
  folder.Write("a.bin.json", R"({"dtype": "int32"})");
  EXPECT_EQ(ReadAll(Open(path)), Counting(100));
  EXPECT_EQ(Open(path).row_width(), 0);
}

TEST(TokenFileTest, RefusesWrongSidecars) {
  testing::DataFolder folder;
  const std::string path = folder.Write("a.bin", RawBytes(As<uint16_t>(Counting(100))));
  const auto refused = [&](const std::string& sidecar, const std::string& part) {
    folder.Write("a.json", sidecar);
    ExpectError(ErrorOf([&] { Open(path); }), ErrorCode::kBadData, {"a.json: ", part});
  };
  refused("", "JSON object");
  refused("[1]", "JSON object");
  refused(R"({"dtype": "float32"})", "dtype is \"float32\"");
  refused(R"({"dtype": 16})", "dtype is 16");
  refused(R"({"shape": 100})", "list of sizes");
  refused(R"({"shape": [-1, 100]})", "list of sizes");
  refused(R"({"shape": [18446744073709551615]})", "list of sizes");
  refused(R"({"shape": [72057594037927935, 72057594037927935]})", "200 bytes");
  refused(R"({"shape": [10, 11]})", "shape (10, 11), but");
  refused(R"({"dtype": "uint64", "shape": [100]})", "uint64 elements of shape (100), but");
  folder.Write("a.json", R"({"shape": [5, 5, 4]})");
  ExpectError(ErrorOf([&] { Open(path); }), ErrorCode::kBadData, {"3 dimensions"});
}

TEST(TokenFileTest, RefusesBrokenRawFiles) {
  testing::DataFolder folder;
  ExpectError(ErrorOf([&] { Open(folder.Write("a.bin", "abc")); }), ErrorCode::kBadData,
              {"3 bytes", "uint16"});
  EXPECT_EQ(Open(folder.Write("b.bin", "")).size(), 0);
}

TEST(TokenFileTest, NamesTheFirstIdOutsideOfTheVocabulary) {
  testing::DataFolder folder;
  const auto error = [&](const std::string& descr, const std::string& data) {
    const TokenFile file = Open(folder.Write("a.npy", Npy(descr, "(3,)", data)));
    return ErrorOf([&] { ReadAll(file, 10); });
  };
  const auto code = ErrorCode::kTokenOutOfVocabulary;
  ExpectError(error("<u2", RawBytes<uint16_t>({1, 10, 99})), code,
              {"a.npy: token 1 has the id 10", "10 entries", "uint16"});
  ExpectError(error("<i4", RawBytes<int32_t>({1, 2, -5})), code, {"token 2 has the id -5"});
  ExpectError(error("<u8", RawBytes<uint64_t>({1ull << 63, 2, 3})), code, {"token 0"});
  EXPECT_EQ(error("<u2", RawBytes<uint16_t>({0, 5, 9})), "");
}

}  // namespace
}  // namespace gt::token_file_test
