#include "gt/data/data_split.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "gt/data/data_test_util.h"

namespace gt::data_split_test {
namespace {

using testing::ErrorOf;
using testing::ExpectError;

DataSplit HeldOut(double share) { return {.held_out = share, .part = DataPart::kHeldOut}; }
DataSplit Training(double share) { return {.held_out = share, .part = DataPart::kTraining}; }

// Runs are continued by later versions: the function never changes.
TEST(DataSplitTest, HoldsOutTheSameTextsForever) {
  std::string chosen;
  for (char c = 'a'; c <= 'z'; ++c) {
    if (HeldOut(0.25).HasText(std::string(3, c))) chosen += c;
  }
  EXPECT_EQ(chosen, "bjmnpsx");
  std::string rows;
  for (int64_t row = 0; row < 40; ++row) {
    if (HeldOut(0.1).HasRow(row)) rows += std::to_string(row) + " ";
  }
  EXPECT_EQ(rows, "10 18 21 ");
}

TEST(DataSplitTest, EveryItemIsOnOneSide) {
  for (int i = 0; i < 1000; ++i) {
    const std::string text = "document " + std::to_string(i);
    EXPECT_NE(HeldOut(0.2).HasText(text), Training(0.2).HasText(text));
    EXPECT_NE(HeldOut(0.2).HasRow(i), Training(0.2).HasRow(i));
    EXPECT_TRUE(DataSplit().HasText(text) && DataSplit().HasRow(i));
  }
}

TEST(DataSplitTest, TheShareIsAboutWhatIsAskedFor) {
  int texts = 0, rows = 0;
  for (int i = 0; i < 20'000; ++i) {
    texts += HeldOut(0.05).HasText("document " + std::to_string(i));
    rows += HeldOut(0.05).HasRow(i);
  }
  EXPECT_NEAR(texts, 1000, 150);
  EXPECT_NEAR(rows, 1000, 150);
  EXPECT_EQ(HeldOut(0.05).share(), 0.05);
  EXPECT_EQ(Training(0.05).share(), 0.95);
  EXPECT_EQ(DataSplit().share(), 1);
}

TEST(DataSplitTest, ALargerShareHoldsOutTheSameAndMore) {
  for (int i = 0; i < 1000; ++i) {
    const std::string text = std::to_string(i);
    EXPECT_LE(HeldOut(0.1).HasText(text), HeldOut(0.3).HasText(text));
    EXPECT_LE(HeldOut(0.1).HasRow(i), HeldOut(0.3).HasRow(i));
  }
}

// The last line of a file may end without a line feed, and files come from other systems.
TEST(DataSplitTest, SpaceAroundATextDoesNotCount) {
  for (int i = 0; i < 100; ++i) {
    const std::string text = std::to_string(i);
    EXPECT_EQ(HeldOut(0.5).HasText(text), HeldOut(0.5).HasText(text + "\r\n\n"));
  }
}

TEST(PartNumbersTest, NumberTheItemsOfAPart) {
  for (const double share : {0.0, 0.01, 0.3, 0.7, 1.0}) {
    for (const int64_t all : {0, 1, 2, 100, 1001}) {
      std::vector<int64_t> held_out, kept;
      for (int64_t i = 0; i < all; ++i) {
        (HeldOut(share).HasRow(i) ? held_out : kept).push_back(i);
      }
      for (const DataPart part : {DataPart::kHeldOut, DataPart::kTraining}) {
        const std::vector<int64_t>& expected = part == DataPart::kHeldOut ? held_out : kept;
        const PartNumbers numbers(part, all, held_out);
        ASSERT_EQ(numbers.size(), std::ssize(expected));
        for (int64_t i = 0; i < numbers.size(); ++i) {
          ASSERT_EQ(numbers(i), expected[static_cast<std::size_t>(i)]);
        }
        for (int64_t i = 0; i < all; ++i) {
          EXPECT_EQ(numbers.Has(i),
                    std::find(expected.begin(), expected.end(), i) != expected.end());
        }
      }
    }
  }
  const PartNumbers whole(DataPart::kAll, 7, {});
  EXPECT_EQ(whole.size(), 7);
  EXPECT_EQ(whole(6), 6);
  EXPECT_TRUE(whole.Has(3));
}

TEST(RequireItemsTest, SaysWhatToChange) {
  EXPECT_NO_THROW(RequireItems(HeldOut(0.1), 2, 20, 2, "documents", "x"));
  ExpectError(ErrorOf([] { RequireItems(HeldOut(0.1), 1, 20, 2, "documents", "x"); }),
              ErrorCode::kDataUnreadable,
              {"--validation.split 0.1 holds out 1 of the 20 documents in 'x', too few for 2 ranks "
               "to get one each; raise it"});
  ExpectError(ErrorOf([] { RequireItems(Training(0.9), 0, 20, 1, "documents", "x"); }),
              ErrorCode::kDataUnreadable,
              {"--validation.split 0.9 leaves none of the 20 documents in 'x' to train on; lower"});
  ExpectError(ErrorOf([] { RequireItems({}, 1, 1, 2, "documents", "x"); }),
              ErrorCode::kDataUnreadable, {"'x' has 1 documents, too few for 2 ranks"});
}

}  // namespace
}  // namespace gt::data_split_test
