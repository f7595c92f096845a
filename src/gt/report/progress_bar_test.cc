#include "gt/report/progress_bar.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <limits>
#include <memory>

namespace gt::progress_bar_test {
namespace {

TEST(RenderBarTest, ShowsBarPercentAndText) {
  EXPECT_EQ(RenderBar(0.5, "20/40  loss 4.18", 37), "|######------|  50%  20/40  loss 4.18");
  EXPECT_EQ(RenderBar(0, "0/40", 21), "|--------|   0%  0/40");
  EXPECT_EQ(RenderBar(1, "40/40", 24), "|##########| 100%  40/40");
}

TEST(RenderBarTest, TheBarGivesWayToTheText) {
  EXPECT_EQ(RenderBar(0.5, "a text of some length", 27), " 50%  a text of some length");
  EXPECT_EQ(RenderBar(0.5, "a text of some length", 20), " 50%  a text of som…");
  EXPECT_EQ(RenderBar(0.5, "text", 1), "…");
  EXPECT_EQ(RenderBar(0.5, "text", 0), "");
}

TEST(RenderBarTest, NeverIsWiderThanAsked) {
  for (const char* text :
       {"", "20/50  loss 4.18", "日本語のテキスト 日本語", "naïve 🎉🎉", "\xFF\xFE"}) {
    for (std::size_t width = 0; width < 120; ++width) {
      for (const double fraction : {0.0, 0.333, 0.999, 1.0}) {
        EXPECT_LE(DisplayWidth(RenderBar(fraction, text, width)), width) << text;
      }
    }
  }
}

TEST(RenderBarTest, OnlyTheEndIsOneHundredPercent) {
  EXPECT_EQ(RenderBar(0.9999, "x", 8), " 99%  x");
  EXPECT_EQ(RenderBar(1.7, "x", 8), "100%  x");
  EXPECT_EQ(RenderBar(-1, "x", 8), "  0%  x");
  EXPECT_EQ(RenderBar(std::numeric_limits<double>::quiet_NaN(), "x", 8), "  0%  x");
}

TEST(RenderBarTest, ControlCharactersCannotBreakTheLine) {
  EXPECT_EQ(RenderBar(0, "a\nb\x1b[2Jc", 14), "  0%  a b [2Jc");
}

TEST(DisplayWidthTest, CountsColumns) {
  EXPECT_EQ(DisplayWidth("loss 4.18"), 9u);
  EXPECT_EQ(DisplayWidth("naïve"), 5u);
  EXPECT_EQ(DisplayWidth("e\xCC\x81"), 1u);  // a combining accent
  EXPECT_EQ(DisplayWidth("日本"), 4u);
  EXPECT_EQ(DisplayWidth("🎉"), 2u);
  EXPECT_EQ(DisplayWidth("\xFF\xE6\x97"), 3u);  // not UTF-8
}

TEST(FittedToTest, CutsBetweenCharacters) {
  EXPECT_EQ(FittedTo("日本語", 6), "日本語");
  EXPECT_EQ(FittedTo("日本語", 5), "日本…");
  EXPECT_EQ(FittedTo("日本語", 4), "日…");
  EXPECT_EQ(FittedTo("abc", 0), "");
}

TEST(DurationTextTest, IsShort) {
  EXPECT_EQ(DurationText(0), "0:00");
  EXPECT_EQ(DurationText(31.4), "0:31");
  EXPECT_EQ(DurationText(725), "12:05");
  EXPECT_EQ(DurationText(3 * 3600 + 7 * 60), "3:07:00");
  EXPECT_EQ(DurationText(51 * 3600), "2d 3h");
  EXPECT_EQ(DurationText(-5), "0:00");
  EXPECT_FALSE(DurationText(std::numeric_limits<double>::infinity()).empty());
}

TEST(ProgressTextTest, EstimatesFromTheStepsOfThisRun) {
  EXPECT_EQ(ProgressText(20, 50, 0, 20, "loss 4.18"), "20/50  loss 4.18  ETA 0:30");
  EXPECT_EQ(ProgressText(20, 50, 10, 20, ""), "20/50  ETA 1:00");  // resumed at step 10
  EXPECT_EQ(ProgressText(10, 50, 10, 0, ""), "10/50");
  EXPECT_EQ(ProgressText(50, 50, 0, 9, ""), "50/50");
}

TEST(ProgressBarTest, WritesNothingIntoAPipe) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  std::FILE* file = fdopen(ends[1], "w");
  {
    ProgressBar bar(10, file);
    EXPECT_FALSE(bar.is_shown());
    bar.Update(5, "loss 1");
    bar.Clear();
  }
  std::fflush(file);
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), -1);
  std::fclose(file);
  close(ends[0]);
}

// A terminal of 50 columns, seen from its other side.
class Terminal {
 public:
  Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) return;
    file_ = std::fopen(ptsname(master_), "r+");
    if (!file_) return;
    winsize size = {};
    size.ws_col = 50;
    ioctl(master_, TIOCSWINSZ, &size);
  }
  ~Terminal() {
    if (file_) std::fclose(file_);
    if (master_ >= 0) close(master_);
  }

  std::FILE* file() const { return file_; }
  std::string Output() const {
    std::string text(4096, '\0');
    const ssize_t got = read(master_, text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return text;
  }

 private:
  int master_;
  std::FILE* file_ = nullptr;
};

TEST(ProgressBarTest, RedrawsOneLineOfATerminal) {
  Terminal terminal;
  if (!terminal.file()) GTEST_SKIP() << "this system gives out no terminals";
  setenv("TERM", "xterm", 1);
  EXPECT_EQ(TerminalWidth(terminal.file()), 50u);
  {
    ProgressBar bar(10, terminal.file());
    ASSERT_TRUE(bar.is_shown());
    EXPECT_EQ(terminal.Output(), "");
    bar.Update(10, "loss 1.5 and more numbers");
    // One column stays free, so 49 of 50 are used.
    EXPECT_EQ(terminal.Output(), "\r|########| 100%  10/10  loss 1.5 and more numbers\x1b[K");
    bar.Clear();
    EXPECT_EQ(terminal.Output(), "\r\x1b[K");
    bar.Clear();  // nothing left to erase
    EXPECT_EQ(terminal.Output(), "");
    bar.Update(10, "");
    terminal.Output();
  }
  EXPECT_EQ(terminal.Output(), "\r\x1b[K");  // also when it is destroyed
}

}  // namespace
}  // namespace gt::progress_bar_test
