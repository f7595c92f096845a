#include "gt/launch/line_merger.h"

#include <gtest/gtest.h>

namespace gt::line_merger_test {
namespace {

TEST(LineMergerTest, RankZeroPassesThroughByteByByte) {
  LineMerger merger(2);
  EXPECT_EQ(merger.Add(0, "\rstep 1"), "\rstep 1");
  EXPECT_EQ(merger.Add(0, "\rstep 2\n"), "\rstep 2\n");
  EXPECT_EQ(merger.Add(0, ""), "");
}

TEST(LineMergerTest, OthersGoOutByWholeLinesWithTheirRank) {
  LineMerger merger(4);
  EXPECT_EQ(merger.Add(3, "ab"), "");
  EXPECT_EQ(merger.Add(2, "xy\n\nz"), "[rank 2] xy\n[rank 2] \n");
  EXPECT_EQ(merger.Add(3, "c\r\nd"), "[rank 3] abc\n");
  EXPECT_EQ(merger.Finish(3), "[rank 3] d\n");
  EXPECT_EQ(merger.Finish(3), "");
  EXPECT_EQ(merger.Finish(2), "[rank 2] z\n");
}

TEST(LineMergerTest, OthersWaitForTheEndOfRankZerosLine) {
  LineMerger merger(2);
  EXPECT_EQ(merger.Add(0, "one "), "one ");
  EXPECT_EQ(merger.Add(1, "other\n"), "");
  EXPECT_TRUE(merger.waiting());
  EXPECT_EQ(merger.Add(0, "li"), "li");
  EXPECT_EQ(merger.Add(0, "ne\ntwo"), "ne\n[rank 1] other\ntwo");
  EXPECT_FALSE(merger.waiting());
  EXPECT_EQ(merger.Add(1, "again\n"), "");
  EXPECT_EQ(merger.Break(), "\n[rank 1] again\n");
  EXPECT_FALSE(merger.waiting());
  EXPECT_EQ(merger.Add(1, "free\n"), "[rank 1] free\n");
  EXPECT_EQ(merger.Break(), "");
}

TEST(LineMergerTest, AProgressBarOfAnotherRankShowsItsLastState) {
  LineMerger merger(2);
  EXPECT_EQ(merger.Add(1, "\r10%\r20%"), "");
  EXPECT_EQ(merger.Add(1, "\r30%\r\n"), "[rank 1] 30%\n");
}

TEST(LineMergerTest, EndlessLinesAreCut) {
  LineMerger merger(2);
  const std::string half(LineMerger::kMaxLine / 2, 'x');
  EXPECT_EQ(merger.Add(1, half), "");
  EXPECT_EQ(merger.Add(1, half + "tail\n"), "[rank 1] " + half + half + "\n[rank 1] tail\n");
  // A line of just that length is one line.
  EXPECT_EQ(merger.Add(1, half + half + "\n"), "[rank 1] " + half + half + "\n");
}

}  // namespace
}  // namespace gt::line_merger_test
