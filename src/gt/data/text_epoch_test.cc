#include "gt/data/text_epoch.h"

#include <gtest/gtest.h>

#include <random>

#include "gt/data/data_test_util.h"

namespace gt::text_epoch_test {
namespace {

TEST(TextEpochTest, TellsTextFromOtherBytes) {
  EXPECT_EQ(ShareOfNoText(""), 0);
  EXPECT_EQ(ShareOfNoText("plain\ttext\r\n\f"), 0);
  EXPECT_EQ(ShareOfNoText("gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80 \xEF\xBF\xBD"), 0);
  EXPECT_EQ(ShareOfNoText(std::string("a\0b\0", 4)), 0.5);  // UTF-16
  EXPECT_EQ(ShareOfNoText("\xCF\xF0\xE8\xE2"), 1);          // another encoding
  EXPECT_NEAR(ShareOfNoText("na\xEFve caf\xE9, latin letters"), 2.0 / 25, 0.01);
  std::string noise;
  std::mt19937 random(3);
  for (int i = 0; i < 10'000; ++i) noise += static_cast<char>(random());
  EXPECT_GT(ShareOfNoText(noise), 0.45);
}

PackerOptions Bytes() {
  PackerOptions options{.length = 10, .vocab_size = 258, .bos_id = 1, .eos_id = {}, .encode = {}};
  options.encode = testing::EncodeBytes;
  return options;
}

TEST(TextEpochTest, CountsWhatIsThere) {
  UnitSample sample;
  sample.texts = {{"abc", 20, "a"}, {"", 15, "a"}, {"abcde", 22, "b"}};
  sample.is_everything = sample.units_are_counted = true;
  sample.units = 3;
  sample.bytes = 57;
  EpochSize size = MeasureText(sample, Bytes(), std::nullopt);
  EXPECT_EQ(size.tokens, 8 + 2);  // an empty text leaves no trace
  EXPECT_TRUE(size.tokens_are_counted);
  EXPECT_EQ(size.sequences, 1.0);
  EXPECT_EQ(MeasureText(sample, Bytes(), 1).tokens, 9);
  // A tenth of the data.
  sample.is_everything = false;
  sample.units = 30;
  sample.bytes = 570;
  size = MeasureText(sample, Bytes(), std::nullopt);
  EXPECT_NEAR(size.tokens, 80 + 20, 1e-9);
  EXPECT_FALSE(size.tokens_are_counted);
}

TEST(TextEpochTest, NamesTheOddestFile) {
  UnitSample sample;
  sample.texts = {{"text", 4, "good"}, {"x\x01\x02\x03", 4, "bad"}, {"abcd\x01", 5, "odd"}};
  const EpochSize size = MeasureText(sample, Bytes(), std::nullopt);
  EXPECT_EQ(size.oddest_file, "bad");
  EXPECT_EQ(size.odd_share, 0.75);
}

}  // namespace
}  // namespace gt::text_epoch_test
