#include "gt/placement/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace gt::placement {

bool Layout::HasPartial() const {
  return std::find(axes.begin(), axes.end(), kPartial) != axes.end();
}

std::vector<int64_t> WaysOf(const Layout& layout, const Pieces& pieces, const DeviceMesh& mesh) {
  std::vector<int64_t> ways(pieces.size(), 1);
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (layout[axis] >= 0) ways[static_cast<size_t>(layout[axis])] *= mesh.size(axis);
  }
  return ways;
}

bool Fits(const Layout& layout, const Pieces& pieces, const DeviceMesh& mesh) {
  const std::vector<int64_t> ways = WaysOf(layout, pieces, mesh);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (ways[i] == 1) continue;
    if (!piece.first) {
      if (piece.size % ways[i] != 0) return false;
      continue;
    }
    // With ceil division the last shards may have nothing: 5 rows among 4 ranks are 2, 2, 1, 0.
    const int64_t longest = (piece.dim_size + ways[i] - 1) / ways[i];
    if (longest * (ways[i] - 1) >= piece.dim_size) return false;
    // A dimension that is also cut in one of its other pieces must divide: each rank has a stretch of
    // the first piece, and of each of its elements the same part.
    for (size_t j = i + 1; j < pieces.size() && !pieces[j].first; ++j) {
      if (ways[j] > 1 && piece.size % ways[i] != 0) return false;
    }
  }
  return true;
}

double LocalFraction(const Layout& layout, const Pieces& pieces, const DeviceMesh& mesh) {
  const std::vector<int64_t> ways = WaysOf(layout, pieces, mesh);
  double fraction = 1;
  for (int axis = 0; axis < mesh.axes(); ++axis) {  // as if every expert had as many rows
    if (IsRouted(layout[axis])) fraction /= static_cast<double>(mesh.size(axis));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (ways[i] == 1) continue;
    const int64_t extent = pieces[i].limit();
    const int64_t longest = (extent + ways[i] - 1) / ways[i];
    fraction *= static_cast<double>(longest) / static_cast<double>(extent);
  }
  return fraction;
}

std::vector<Layout> LayoutsOf(const Pieces& pieces, const DeviceMesh& mesh) {
  std::vector<Layout> layouts = {Layout{}};
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const size_t before = layouts.size();
    for (size_t piece = 0; piece < pieces.size(); ++piece) {
      if (pieces[piece].limit() < mesh.size(axis)) continue;
      for (size_t i = 0; i < before; ++i) {
        Layout layout = layouts[i];
        layout[axis] = static_cast<ShardState>(piece);
        if (Fits(layout, pieces, mesh)) layouts.push_back(layout);
      }
    }
  }
  return layouts;
}

std::string ToString(const Layout& layout, const Pieces& pieces, const DeviceMesh& mesh) {
  std::string text;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const ShardState state = layout[axis];
    if (IsRouted(state)) {
      text += fmt::format("E{}", kRouted - state);
      continue;
    }
    if (state < 0) {
      text += state == kWhole ? "R" : "P";
      continue;
    }
    const size_t piece = static_cast<uint8_t>(state);
    size_t first = piece;
    while (!pieces[first].first) --first;
    text += fmt::format("S({}", pieces[piece].dim);
    if (first != piece) text += fmt::format(".{}", piece - first);
    text += ")";
  }
  return text;
}

namespace {

// The piece that "0" or "0.1" at the beginning of the text names, which is then removed.
std::optional<ShardState> TakePiece(std::string_view& text, const Pieces& pieces) {
  auto number = [&text]() -> std::optional<int32_t> {
    int32_t value = 0;
    auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(stop - text.data()));
    return value;
  };
  const std::optional<int32_t> dim = number();
  if (!dim) return std::nullopt;
  int32_t place = 0;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    const std::optional<int32_t> given = number();
    if (!given || *given < 0) return std::nullopt;
    place = *given;
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].dim != *dim || !pieces[i].first) continue;
    const size_t piece = i + static_cast<size_t>(place);
    if (piece >= pieces.size() || pieces[piece].dim != *dim) return std::nullopt;
    return static_cast<ShardState>(piece);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Layout> ParseLayout(std::string_view text, const Pieces& pieces,
                                  const DeviceMesh& mesh) {
  Layout layout;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (text.empty()) return std::nullopt;
    const char kind = text.front();
    text.remove_prefix(1);
    if (kind == 'R' || kind == 'P') {
      layout[axis] = kind == 'R' ? kWhole : kPartial;
      continue;
    }
    if (kind == 'E' && (text.starts_with('0') || text.starts_with('1'))) {
      layout[axis] = RoutedBy(text.front() - '0');
      text.remove_prefix(1);
      continue;
    }
    if (kind != 'S') return std::nullopt;
    const bool bracket = text.starts_with('(');
    if (bracket) text.remove_prefix(1);
    const std::optional<ShardState> piece = TakePiece(text, pieces);
    if (!piece) return std::nullopt;
    layout[axis] = *piece;
    if (!bracket) continue;
    if (!text.starts_with(')')) return std::nullopt;
    text.remove_prefix(1);
  }
  if (!text.empty() || !Fits(layout, pieces, mesh)) return std::nullopt;
  return layout;
}

}  // namespace gt::placement
