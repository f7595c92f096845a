#include "gt/report/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace gt {
namespace {

struct Character {
  char32_t code = 0;
  std::size_t bytes = 1;
};

// The character that `text` begins with; a byte that does not begin one is a character of its own.
Character FirstCharacter(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t length = lead < 0x80             ? 1
                             : (lead & 0xE0) == 0xC0 ? 2
                             : (lead & 0xF0) == 0xE0 ? 3
                             : (lead & 0xF8) == 0xF0 ? 4
                                                     : 0;
  constexpr char32_t kReplacement = 0xFFFD;
  if (length == 1) return {lead, 1};
  if (length == 0 || text.size() < length) return {kReplacement, 1};
  char32_t code = lead & (0x7F >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {kReplacement, 1};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {code, length};
}

struct Range {
  char32_t first, last;
};

bool IsIn(char32_t code, const auto& ranges) {
  return std::any_of(std::begin(ranges), std::end(ranges), [code](const Range& range) {
    return code >= range.first && code <= range.last;
  });
}

// Whole blocks, not the exact tables of Unicode: a column too many only shortens the line.
std::size_t ColumnsOf(char32_t code) {
  static constexpr Range kNone[] = {
      {0x00, 0x1F},     {0x7F, 0x9F},     {0x300, 0x36F},   {0x200B, 0x200F},
      {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xE0100, 0xE01EF},
  };
  static constexpr Range kWide[] = {
      {0x1100, 0x115F},   {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
      {0xFE30, 0xFE4F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F},
      {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD},
  };
  if (IsIn(code, kNone)) return 0;
  return IsIn(code, kWide) ? 2 : 1;
}

// How many bytes of `text` fit into `width` columns.
std::size_t FittingBytes(std::string_view text, std::size_t width) {
  std::size_t at = 0;
  std::size_t columns = 0;
  while (at < text.size()) {
    const Character next = FirstCharacter(text.substr(at));
    columns += ColumnsOf(next.code);
    if (columns > width) break;
    at += next.bytes;
  }
  return at;
}

// A line end or an escape sequence inside of the line would break it.
std::string WithoutControls(std::string_view text) {
  std::string clean(text);
  std::replace_if(
      clean.begin(), clean.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return clean;
}

std::string BarOf(double fraction, std::size_t columns) {
  const auto filled = static_cast<std::size_t>(std::floor(fraction * static_cast<double>(columns)));
  return "|" + std::string(filled, '#') + std::string(columns - filled, '-') + "|";
}

bool IsTerminal(std::FILE* file) {
  // Escape sequences are not understood by a terminal that calls itself dumb.
  const char* kind = std::getenv("TERM");
  return isatty(fileno(file)) && !(kind && std::string_view(kind) == "dumb");
}

}  // namespace

std::size_t DisplayWidth(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character next = FirstCharacter(text);
    columns += ColumnsOf(next.code);
    text.remove_prefix(next.bytes);
  }
  return columns;
}

std::string FittedTo(std::string_view text, std::size_t width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  if (width == 0) return "";
  return std::string(text.substr(0, FittingBytes(text, width - 1))) + "…";
}

std::string RenderBar(double fraction, std::string_view text, std::size_t width) {
  constexpr std::size_t kWidest = 30;
  constexpr std::size_t kNarrowest = 8;
  fraction = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  // 100 % is said only of what is finished.
  const std::string percent = fmt::format("{:3d}%", static_cast<int>(std::floor(fraction * 100)));
  std::string rest = percent + "  " + WithoutControls(text);
  const std::size_t needed = DisplayWidth(rest) + 3;  // two ends of the bar and a space
  if (needed + kNarrowest > width) return FittedTo(rest, width);
  return BarOf(fraction, std::min(kWidest, width - needed)) + " " + rest;
}

std::string DurationText(double seconds) {
  constexpr double kMost = 1e9;  // some thirty years, and garbage beyond
  if (!(seconds >= 0)) seconds = 0;
  const auto whole = static_cast<int64_t>(std::llround(std::min(seconds, kMost)));
  const int64_t hours = whole / 3600;
  const int64_t minutes = whole / 60 % 60;
  if (hours >= 48) return fmt::format("{}d {}h", hours / 24, hours % 24);
  if (hours > 0) return fmt::format("{}:{:02d}:{:02d}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02d}", minutes, whole % 60);
}

std::size_t TerminalWidth(std::FILE* file) {
  constexpr std::size_t kUsual = 80;
  winsize size = {};
  if (ioctl(fileno(file), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

std::string ProgressText(int64_t done, int64_t total, int64_t first, double seconds,
                         std::string_view metrics) {
  std::string text = fmt::format("{}/{}", done, total);
  if (!metrics.empty()) text += fmt::format("  {}", metrics);
  if (done > first && done < total) {
    const double per_step = seconds / static_cast<double>(done - first);
    text += "  ETA " + DurationText(per_step * static_cast<double>(total - done));
  }
  return text;
}

ProgressBar::ProgressBar(int64_t total, std::FILE* file) : ProgressBar(total, 0, file) {}

ProgressBar::ProgressBar(int64_t total, int64_t first, std::FILE* file)
    : file_(file),
      is_terminal_(IsTerminal(file)),
      total_(total),
      first_(first),
      start_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::Update(int64_t done, std::string_view metrics) {
  if (!is_terminal_) return;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
  const double fraction =
      total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 0.0;
  const std::string text = ProgressText(done, total_, first_, passed.count(), metrics);
  // The last column stays free: some terminals move to the next line as soon as it is written.
  const std::size_t width = TerminalWidth(file_) - 1;
  const std::string line = "\r" + RenderBar(fraction, text, width) + "\x1b[K";
  std::fwrite(line.data(), 1, line.size(), file_);
  std::fflush(file_);
  is_drawn_ = true;
}

void ProgressBar::Clear() {
  if (!is_drawn_) return;
  std::fputs("\r\x1b[K", file_);
  std::fflush(file_);
  is_drawn_ = false;
}

}  // namespace gt
