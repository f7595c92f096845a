#include "gt/launch/line_merger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gt {
namespace {

// What a terminal would show of a line that was overwritten from its start, such as a progress bar.
std::string_view AsLastDrawn(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t start = line.rfind('\r');
  return start == std::string_view::npos ? line : line.substr(start + 1);
}

}  // namespace

std::string LineMerger::Add(std::size_t rank, std::string_view bytes) {
  if (rank == 0) return AddRankZero(bytes);
  std::string& unfinished = unfinished_[rank];
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, std::min(end, kMaxLine - unfinished.size()));
    unfinished += part;
    bytes.remove_prefix(part.size());
    const bool at_end = !bytes.empty() && bytes.front() == '\n';
    if (at_end) bytes.remove_prefix(1);
    if (at_end || unfinished.size() == kMaxLine) {
      Hold(rank, unfinished);
      unfinished.clear();
    }
  }
  return TakeHeldUnlessInLine();
}

std::string LineMerger::AddRankZero(std::string_view bytes) {
  if (bytes.empty()) return {};
  const std::size_t lines = bytes.rfind('\n') + 1;  // bytes up to the last line end, or 0
  std::string out(bytes.substr(0, lines));
  if (lines > 0) out += std::exchange(held_, {});
  out += bytes.substr(lines);
  in_line_of_rank_zero_ = lines != bytes.size();
  return out;
}

std::string LineMerger::Finish(std::size_t rank) {
  std::string& unfinished = unfinished_[rank];
  if (!unfinished.empty()) Hold(rank, unfinished);
  unfinished.clear();
  return TakeHeldUnlessInLine();
}

std::string LineMerger::Break() {
  if (held_.empty()) return {};
  std::string out = in_line_of_rank_zero_ ? "\n" : "";
  in_line_of_rank_zero_ = false;
  return out + std::exchange(held_, {});
}

void LineMerger::Hold(std::size_t rank, std::string_view line) {
  held_ += fmt::format("[rank {}] {}\n", rank, AsLastDrawn(line));
}

std::string LineMerger::TakeHeldUnlessInLine() {
  return in_line_of_rank_zero_ ? std::string() : std::exchange(held_, {});
}

}  // namespace gt
