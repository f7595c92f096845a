// Where the boxes of a picture (report/graph_boxes.h) are, and where edges pass between them.
// Coordinates grow to the right and down.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "gt/report/graph_boxes.h"

namespace gt {

// Of the text in a box and the space around it: a box is as wide as what is drawn in it.
inline constexpr double kTitleSize = 12.5, kLineSize = 11, kPadding = 10;

// An upper estimate: which font a viewer has is not known.
double TextWidth(std::string_view text, double size, bool bold = false);

// Boxes in rows, in each row by lane: lane 0 is what belongs to all chunks and has the whole width,
// then one lane for each chunk, and last one for edges that pass by all chunks. A row has either
// boxes of chunks or boxes of lane 0. An edge over several rows has a place of its own in each
// row that it crosses, so that no edge runs behind a box.
struct BoxLayout {
  static constexpr size_t kNoBox = std::numeric_limits<size_t>::max();
  struct Item {
    size_t box = kNoBox;  // kNoBox: an edge that passes
    size_t row = 0, lane = 0;
    double width = 0;
    double x = 0;                  // of its middle
    std::vector<size_t> up, down;  // items in the rows above and below that it is connected with
  };
  struct Row {
    bool chunked = false;
    double top = 0, height = 0;
    std::vector<std::vector<size_t>> cells;  // items by lane, from left to right
  };
  struct Lane {
    int32_t chunk = -1;
    double left = 0, right = 0;
  };

  std::vector<Item> items;  // boxes first, each at its own number
  std::vector<Row> rows;    // from top to bottom; their tops and heights are left to who draws them
  std::vector<Lane> lanes;
  // By edge: the items that it passes through, from its first box to its last.
  std::vector<std::vector<size_t>> paths;
  double width = 0;

  // Brings the left edge of everything to `left`.
  void MoveTo(double left);
};

// The left edge of the result is at 0.
BoxLayout ArrangeBoxes(const std::vector<Box>& boxes, const std::vector<Edge>& edges);

}  // namespace gt
