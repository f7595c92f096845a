#include "gt/data/npy.h"

#include <gtest/gtest.h>

#include "gt/data/data_test_util.h"
#include "gt/storage/mapped_file.h"

namespace gt::npy_test {
namespace {

using testing::ErrorOf;
using testing::ExpectError;
using testing::Npy;

NpyHeader Parse(std::string_view file) { return ParseNpy(std::as_bytes(std::span(file)), "a.npy"); }

TEST(NpyTest, ReadsWhatNumPyWrote) {
  const MappedFile file(GT_SOURCE_DIR "/tests/data/rows.npy", ErrorCode::kDataUnreadable);
  const NpyHeader header = ParseNpy(file.bytes(), "rows.npy");
  EXPECT_EQ(header.type, TokenType::kUint16);
  EXPECT_EQ(header.shape, (std::vector<int64_t>{6, 5}));
  EXPECT_EQ(header.elements, 30);
  EXPECT_EQ(header.data_offset, 128u);
}

TEST(NpyTest, KnowsTheTypesOfTokenIds) {
  const auto type = [](std::string_view descr, std::size_t bytes) {
    return Parse(Npy(descr, "(3,)", std::string(3 * bytes, '\0'))).type;
  };
  EXPECT_EQ(type("|u1", 1), TokenType::kUint8);
  EXPECT_EQ(type("<u2", 2), TokenType::kUint16);
  EXPECT_EQ(type("<u4", 4), TokenType::kUint32);
  EXPECT_EQ(type("<u8", 8), TokenType::kUint64);
  EXPECT_EQ(type("<i2", 2), TokenType::kInt16);
  EXPECT_EQ(type("<i4", 4), TokenType::kInt32);
  EXPECT_EQ(type("<i8", 8), TokenType::kInt64);
}

// Versions 2 and 3 have a longer length field.
TEST(NpyTest, ReadsLaterVersions) {
  const std::string first = Npy("<u2", "(2,)", "abcd");
  for (const char version : {'\2', '\3'}) {
    std::string later = first.substr(0, 6) + version + '\0' + first.substr(8, 2) +
                        std::string(2, '\0') + first.substr(10);
    EXPECT_EQ(Parse(later).elements, 2);
    EXPECT_EQ(Parse(later).data_offset, first.size() - 4 + 2);
  }
}

TEST(NpyTest, ShapesMayBeAnything) {
  EXPECT_EQ(Parse(Npy("|u1", "()", "x")).shape.size(), 0u);
  EXPECT_EQ(Parse(Npy("|u1", "(2, 1, 2)", "abcd")).shape, (std::vector<int64_t>{2, 1, 2}));
  EXPECT_EQ(Parse(Npy("|u1", "(4L,)", "abcd")).elements, 4);
  EXPECT_EQ(Parse(Npy("<i8", "(0, 5)", "")).elements, 0);
  EXPECT_EQ(Parse(Npy("|u1", "(4,)", "abcd", /*fortran_order=*/true)).elements, 4);
}

std::string ProblemOf(const std::string& file) {
  return ErrorOf([&] { Parse(file); });
}

TEST(NpyTest, RefusesWhatIsNotTokenIds) {
  const auto refused = [](const std::string& file, const std::string& part) {
    ExpectError(ProblemOf(file), ErrorCode::kBadData, {"a.npy: ", part});
  };
  refused("", "not a .npy file");
  refused("PK\x03\x04 a zip file", "not a .npy file");
  refused(Npy("<f4", "(1,)", "abcd"), "\"<f4\"");
  refused(Npy(">u2", "(2,)", "abcd"), "big-endian");
  refused(Npy("", "(2,)", "abcd"), "type \"\"");
  refused(Npy("<u2", "(2, 2)", "abcdefgh", true), "column by column");
  refused(Npy("<u2", "(3,)", "abcd"),
          "promises 3 elements of shape (3), 2 bytes each, but 4 bytes");
  refused(Npy("<u2", "(1,)", "abcd"), "promises 1 elements");
  refused(Npy("<u2", "(4611686018427387904, 4611686018427387904)", "ab"), "too many");
  refused(Npy("<u2", "(99999999999999999999,)", "ab"), "a size");
  refused(Npy("<u2", "(-1,)", "ab"), "a size");
  refused(Npy("<u2", "(1", "ab"), "expected a size");
  refused(Npy("<u2", "(1 2)", "ab"), "expected ')'");
  refused(Npy("<u2", "(1,), 'more': 1", "ab"), "unknown key \"more\"");
  std::string records = Npy("X", "(1,)", "ab");
  records.replace(records.find("'X'"), 3, "[1]");
  refused(records, "array of records");
}

TEST(NpyTest, RefusesFilesCutShortAnywhere) {
  const std::string whole = Npy("<u2", "(2,)", "abcd");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    ExpectError(ProblemOf(whole.substr(0, length)), ErrorCode::kBadData, {"a.npy: "});
  }
  std::string huge = whole;
  huge[6] = '\2';
  huge.replace(8, 4, "\xFF\xFF\xFF\xFF");
  ExpectError(ProblemOf(huge), ErrorCode::kBadData, {"claims to be 4294967295 bytes"});
  huge[6] = '\4';
  ExpectError(ProblemOf(huge), ErrorCode::kBadData, {"version 4.0"});
}

}  // namespace
}  // namespace gt::npy_test
