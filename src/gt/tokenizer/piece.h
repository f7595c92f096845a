#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace gt {

// A stretch of text on its way through the stages.
struct Piece {
  std::string_view text;

  // How many bytes at the front of `text` come from the first character of the whole input. It
  // takes the place of a map from this text to the input: all that any stage asks is whether a
  // piece begins the input, and normalizers may have removed or multiplied what stood there.
  std::size_t from_start = 0;

  Piece Slice(std::size_t begin, std::size_t end) const {
    const std::size_t left = from_start - std::min(from_start, begin);
    return {text.substr(begin, end - begin), std::min(left, end - begin)};
  }
};

}  // namespace gt
