#include "gt/base/byte_text.h"

#include <gtest/gtest.h>

namespace gt::byte_text_test {
namespace {

TEST(ByteText, Exact) {
  EXPECT_EQ(ExactByteText(0), "0 bytes");
  EXPECT_EQ(ExactByteText(1023), "1023 bytes");
  EXPECT_EQ(ExactByteText(1536), "1.5 KiB (1536 bytes)");
  EXPECT_EQ(ExactByteText(int64_t{3} << 40), "3.0 TiB (3298534883328 bytes)");
}

TEST(ByteText, Decimal) {
  EXPECT_EQ(DecimalByteText(0), "0 bytes");
  EXPECT_EQ(DecimalByteText(999), "999 bytes");
  EXPECT_EQ(DecimalByteText(1'500), "1.5 KB");
  EXPECT_EQ(DecimalByteText(434'123), "434 KB");
  EXPECT_EQ(DecimalByteText(999'600), "1.0 MB");
  EXPECT_EQ(DecimalByteText(12'300'000'000), "12 GB");
}

TEST(EnoughGibibytes, IsNeverTooLittle) {
  constexpr int64_t kGibi = int64_t{1} << 30;
  EXPECT_EQ(EnoughGibibytes(0), "0");
  EXPECT_EQ(EnoughGibibytes(kGibi), "1");
  EXPECT_EQ(EnoughGibibytes(kGibi + 1), "1.001");
  EXPECT_EQ(EnoughGibibytes(95051234567), "88.53");
  EXPECT_EQ(EnoughGibibytes(4096 * kGibi), "4096");
  for (int64_t bytes : {int64_t{1}, int64_t{660'600}, 10 * kGibi - 1, 777 * kGibi + 12345}) {
    const double enough = std::stod(EnoughGibibytes(bytes)) * static_cast<double>(kGibi);
    EXPECT_GE(enough, static_cast<double>(bytes));
    EXPECT_LE(enough, 1.001 * static_cast<double>(bytes));
  }
}

}  // namespace
}  // namespace gt::byte_text_test
