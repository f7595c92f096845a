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

}  // namespace
}  // namespace gt::byte_text_test
