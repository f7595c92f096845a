// The line at the bottom of a terminal that shows how far a run is:
//   |########------------|  40%  20/50  loss 4.1821  12.3k tok/s  ETA 0:31
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace gt {

// One line of at most `width` columns: a bar, the percentage, and `text`, which is what gives way
// last. A fraction outside of [0, 1] is shown as the nearest end.
std::string RenderBar(double fraction, std::string_view text, std::size_t width);

// Columns that a terminal needs for UTF-8 text: wide characters take two, combining ones none. A
// byte that is not UTF-8 takes one.
std::size_t DisplayWidth(std::string_view text);

// The beginning of `text` that fits into `width` columns, with an ellipsis if something was cut.
std::string FittedTo(std::string_view text, std::size_t width);

// "0:31", "12:05", "3:07:00", "2d 3h"
std::string DurationText(double seconds);

// Columns of the terminal behind `file`, or 80.
std::size_t TerminalWidth(std::FILE* file);

// Draws nothing when `file` is not a terminal: lines in a pipe or a log are the trainer's business.
// Other output belongs between Clear() and the next Update().
class ProgressBar {
 public:
  explicit ProgressBar(int64_t total, std::FILE* file = stderr);
  // `first` steps were done before this run, so they say nothing about its speed.
  ProgressBar(int64_t total, int64_t first, std::FILE* file);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  // Redraws the line: `done` steps of the total, and what is worth knowing about them.
  void Update(int64_t done, std::string_view metrics);

  // Erases the line and leaves the cursor at its beginning.
  void Clear();

  bool is_shown() const { return is_terminal_; }

 private:
  std::FILE* file_;
  bool is_terminal_;
  bool is_drawn_ = false;
  int64_t total_, first_;
  std::chrono::steady_clock::time_point start_;
};

// What the bar says beside the percentage: "20/50  loss 4.18  ETA 0:31". The time left follows from
// the steps since `first` and the seconds they took; it is left out while there are none.
std::string ProgressText(int64_t done, int64_t total, int64_t first, double seconds,
                         std::string_view metrics);

}  // namespace gt
