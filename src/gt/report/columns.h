// A table of aligned text.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "gt/report/progress_bar.h"

namespace gt {

// Lines of cells, each column as wide as its widest cell: numbers, at the right, then text, of which the
// last column is not padded.
class Columns {
 public:
  explicit Columns(size_t numbers) : numbers_(numbers) {}

  void Add(std::vector<std::string> cells) {
    widths_.resize(std::max(widths_.size(), cells.size()));
    for (size_t i = 0; i < cells.size(); ++i) {
      widths_[i] = std::max(widths_[i], DisplayWidth(cells[i]));
    }
    lines_.push_back(std::move(cells));
  }

  std::string Text() const {
    std::string text;
    for (const std::vector<std::string>& cells : lines_) {
      for (size_t i = 0; i < cells.size(); ++i) {
        std::string padding(widths_[i] - DisplayWidth(cells[i]), ' ');
        bool last = i + 1 == cells.size();
        text += "  " + (i < numbers_ ? padding + cells[i] : cells[i] + (last ? "" : padding));
      }
      text += "\n";
    }
    return text;
  }

 private:
  size_t numbers_;  // columns, from the left
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> lines_;
};

}  // namespace gt
