#include "gt/storage/checksum.h"

#include <gtest/gtest.h>

#include <vector>

namespace gt::checksum_test {
namespace {

// The test bytes of the xxHash repository's own self-test.
std::vector<std::byte> SanityBytes(size_t count) {
  std::vector<std::byte> bytes;
  uint64_t generator = 2654435761;
  for (size_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::byte>(generator >> 56));
    generator *= 11400714785074694797u;
  }
  return bytes;
}

// Published results: a checkpoint must verify with any other implementation.
TEST(ChecksumTest, AgreesWithTheReferenceImplementation) {
  EXPECT_EQ(Xxh64Of(""), 0xEF46DB3751D8E999);
  EXPECT_EQ(Xxh64Of("a"), 0xD24EC4F1A98C6E5B);
  EXPECT_EQ(Xxh64Of("abc"), 0x44BC2CF5AD770999);
  EXPECT_EQ(Xxh64Of("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1);
  const auto bytes = SanityBytes(222);
  EXPECT_EQ(Xxh64Of(std::span(bytes).first(1)), 0xE934A84ADB052768);
  EXPECT_EQ(Xxh64Of(std::span(bytes).first(4)), 0x9136A0DCA57457EE);
  EXPECT_EQ(Xxh64Of(std::span(bytes).first(14)), 0x8282DCC4994E35C8);
  EXPECT_EQ(Xxh64Of(bytes), 0xB641AE8CB691C174);
}

// However the bytes are cut into pieces, the checksum is the same.
TEST(ChecksumTest, PiecesDoNotMatter) {
  const auto bytes = SanityBytes(200);
  for (size_t length = 0; length <= bytes.size(); length += 7) {
    const auto whole = std::span(bytes).first(length);
    for (size_t piece = 1; piece <= 70; ++piece) {
      Xxh64 hash;
      for (size_t i = 0; i < length; i += piece) {
        hash.Update(whole.subspan(i, std::min(piece, length - i)));
      }
      ASSERT_EQ(hash.Digest(), Xxh64Of(whole)) << length << " bytes in pieces of " << piece;
    }
  }
}

TEST(ChecksumTest, NoticesEveryFlippedBit) {
  auto bytes = SanityBytes(77);
  const uint64_t right = Xxh64Of(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto mask = static_cast<std::byte>(1 << (bit % 8));
    bytes[bit / 8] ^= mask;
    EXPECT_NE(Xxh64Of(bytes), right) << "bit " << bit;
    bytes[bit / 8] ^= mask;
  }
}

TEST(ChecksumTest, TextHasSixteenDigits) { EXPECT_EQ(ChecksumText(0xABC), "0000000000000abc"); }

}  // namespace
}  // namespace gt::checksum_test
