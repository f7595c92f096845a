// Rows first, so that edges lead downwards; then each lane for itself, and what belongs to all
// chunks around them.
#include "gt/report/box_layout.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "gt/base/error.h"

namespace gt {
namespace {

constexpr double kBoxGap = 26, kEdgeGap = 12, kLaneGap = 40;

double WidthOf(const Box& box) {
  double width = TextWidth(box.title, kTitleSize, true);
  for (const std::string& line : box.lines) width = std::max(width, TextWidth(line, kLineSize));
  return width + 2 * kPadding;
}

class Arrangement {
 public:
  Arrangement(const std::vector<Box>& boxes, const std::vector<Edge>& edges)
      : boxes_(boxes), edges_(edges) {
    FindLanes();
    AssignRows();
    MakeItems();
    for (size_t lane = 1; lane < lanes_.size(); ++lane) Arrange(lane);
    PlaceLanes();
    Arrange(0);
  }

  BoxLayout Take() && {
    BoxLayout layout;
    layout.items = std::move(items_);
    layout.rows = std::move(rows_);
    layout.lanes = std::move(lanes_);
    layout.paths = std::move(paths_);
    return layout;
  }

 private:
  using Item = BoxLayout::Item;
  using Row = BoxLayout::Row;
  using Lane = BoxLayout::Lane;
  static constexpr size_t kNoBox = BoxLayout::kNoBox;

  void FindLanes() {
    std::map<int32_t, size_t> lane_of_chunk;
    for (const Box& box : boxes_) {
      if (box.chunk >= 0) lane_of_chunk[box.chunk] = 0;
    }
    lanes_.emplace_back();
    for (auto& [chunk, lane] : lane_of_chunk) {
      lane = lanes_.size();
      lanes_.push_back({chunk, 0, 0});
    }
    lanes_.emplace_back();
    for (const Box& box : boxes_)
      lane_of_.push_back(box.chunk < 0 ? 0 : lane_of_chunk.at(box.chunk));
  }

  // A box is in the first row below everything it needs, the backward below all of the forward.
  // Rows of chunks follow each other for as long as there is a box of a chunk that waits for
  // nothing else.
  void AssignRows() {
    std::vector<std::vector<size_t>> users(boxes_.size());
    std::vector<size_t> waits_for(boxes_.size(), 0);
    for (const Edge& edge : edges_) {
      users[edge.from].push_back(edge.to);
      ++waits_for[edge.to];
    }
    std::array<std::array<std::vector<size_t>, 2>, 2>
        ready;  // by direction, then by chunked or not
    auto make_ready = [&](size_t b) {
      ready[boxes_[b].backward ? 1 : 0][lane_of_[b] > 0 ? 1 : 0].push_back(b);
    };
    for (size_t b = 0; b < boxes_.size(); ++b) {
      if (waits_for[b] == 0) make_ready(b);
    }
    row_of_.assign(boxes_.size(), 0);
    bool chunked = false;
    for (;;) {
      auto& forward = ready[0];
      auto& now = forward[0].empty() && forward[1].empty() ? ready[1] : forward;
      if (now[chunked ? 1 : 0].empty()) chunked = !chunked;
      std::vector<size_t> row = std::exchange(now[chunked ? 1 : 0], {});
      if (row.empty()) break;
      for (size_t b : row) {
        row_of_[b] = rows_.size();
        order_.push_back(b);
        for (size_t user : users[b]) {
          if (--waits_for[user] == 0) make_ready(user);
        }
      }
      rows_.push_back({chunked, 0, 0, {}});
    }
    GT_CHECK(order_.size() == boxes_.size(), "the boxes of a picture need each other");
    SinkParameters(users);
    DropEmptyRows();
  }

  // Parameters, and what is made of them alone, are best seen next to where they are used.
  void SinkParameters(const std::vector<std::vector<size_t>>& users) {
    std::vector<bool> rests_on_others(boxes_.size(), false);
    for (size_t b : order_) {
      if (boxes_[b].nodes.empty() && boxes_[b].kind == BoxKind::kOutside) rests_on_others[b] = true;
      if (!rests_on_others[b]) continue;
      for (size_t user : users[b]) rests_on_others[user] = true;
    }
    for (size_t k = order_.size(); k-- > 0;) {
      size_t b = order_[k];
      if (rests_on_others[b] || users[b].empty()) continue;
      size_t last = rows_.size();
      for (size_t user : users[b]) last = std::min(last, row_of_[user]);
      while (--last > row_of_[b] && rows_[last].chunked != (lane_of_[b] > 0)) {
      }
      row_of_[b] = last;
    }
  }

  void DropEmptyRows() {
    std::vector<bool> used(rows_.size(), false);
    for (size_t row : row_of_) used[row] = true;
    std::vector<size_t> renumbered(rows_.size(), 0);
    size_t count = 0;
    for (size_t row = 0; row < rows_.size(); ++row) {
      renumbered[row] = count;
      if (used[row]) rows_[count++] = rows_[row];
    }
    rows_.resize(count);
    for (size_t& row : row_of_) row = renumbered[row];
  }

  void MakeItems() {
    for (Row& row : rows_) row.cells.resize(lanes_.size());
    for (size_t b = 0; b < boxes_.size(); ++b) {
      items_.push_back({b, row_of_[b], lane_of_[b], WidthOf(boxes_[b]), 0, {}, {}});
      rows_[row_of_[b]].cells[lane_of_[b]].push_back(b);
    }
    for (const Edge& edge : edges_) {
      std::vector<size_t> path = {edge.from};
      for (size_t row = row_of_[edge.from] + 1; row < row_of_[edge.to]; ++row) {
        size_t lane = PassingLane(edge, row);
        rows_[row].cells[lane].push_back(items_.size());
        path.push_back(items_.size());
        items_.push_back({kNoBox, row, lane, kEdgeGap, 0, {}, {}});
      }
      path.push_back(edge.to);
      for (size_t k = 0; k + 1 < path.size(); ++k) {
        items_[path[k]].down.push_back(path[k + 1]);
        items_[path[k + 1]].up.push_back(path[k]);
      }
      paths_.push_back(std::move(path));
    }
  }

  size_t PassingLane(const Edge& edge, size_t row) const {
    if (!rows_[row].chunked) return 0;
    if (lane_of_[edge.to] > 0) return lane_of_[edge.to];
    return lane_of_[edge.from] > 0 ? lane_of_[edge.from] : lanes_.size() - 1;
  }

  // Orders the items of each row by those they are connected with, then moves them there.
  void Arrange(size_t lane) {
    constexpr int kOrderings = 12, kMoves = 400;
    const bool has_twin = lane > 1 && lanes_[lane].chunk >= 0;
    if (has_twin) FollowFirstChunk(lane);
    for (size_t row = 0; row < rows_.size(); ++row) Pack(lane, rows_[row].cells[lane]);
    for (int sweep = 0; sweep < kOrderings && !has_twin; ++sweep) {
      ForEachRow(sweep % 2 == 0, [&](size_t row) { Reorder(lane, row, sweep % 2 == 0); });
    }
    for (int sweep = 0; sweep < kMoves; ++sweep) {
      ForEachRow(sweep % 2 == 0, [&](size_t row) { Straighten(rows_[row].cells[lane]); });
    }
    for (int round = 0; round < 2; ++round) StraightenEdges(lane);
  }

  // Chunks do the same, so their columns should look the same: takes over the order of the first.
  void FollowFirstChunk(size_t lane) {
    const std::vector<size_t> twins = Twins();
    std::map<std::pair<size_t, size_t>, size_t> edge_of;
    for (size_t e = 0; e < edges_.size(); ++e) edge_of[{edges_[e].from, edges_[e].to}] = e;
    for (size_t b = 0; b < boxes_.size(); ++b) {
      if (lane_of_[b] == lane) items_[b].x = items_[twins[b]].x;
    }
    for (size_t e = 0; e < edges_.size(); ++e) {
      auto twin = edge_of.find({twins[edges_[e].from], twins[edges_[e].to]});
      if (twin == edge_of.end()) continue;
      const std::vector<size_t>& path = paths_[twin->second];
      for (size_t k = 1; k + 1 < paths_[e].size(); ++k) {
        Item& item = items_[paths_[e][k]];
        if (item.lane == lane) item.x = items_[path[std::min(k, path.size() - 1)]].x;
      }
    }
    for (Row& row : rows_) {
      std::stable_sort(row.cells[lane].begin(), row.cells[lane].end(),
                       [this](size_t a, size_t b) { return items_[a].x < items_[b].x; });
    }
  }

  // The box of the first chunk that does what a box does: the one with the same title, or of
  // several the one at the same position among them. Otherwise the box itself.
  std::vector<size_t> Twins() const {
    std::map<std::tuple<size_t, std::string_view, size_t>, size_t> known;
    std::map<std::pair<size_t, std::string_view>, size_t> count;
    std::vector<size_t> twins;
    for (size_t b = 0; b < boxes_.size(); ++b) {
      const std::string_view title = boxes_[b].title;
      const size_t position = count[{lane_of_[b], title}]++;
      known[{lane_of_[b], title, position}] = b;
      auto twin = lane_of_[b] > 1 ? known.find({1, title, position}) : known.end();
      twins.push_back(twin == known.end() ? b : twin->second);
    }
    return twins;
  }

  template <typename Visit>
  void ForEachRow(bool downwards, Visit&& visit) const {
    for (size_t k = 0; k < rows_.size(); ++k) visit(downwards ? k : rows_.size() - 1 - k);
  }

  // Lanes are arranged one by one, each for itself; lane 0 is last and sees them all. A long
  // edge holds on to itself more than to its ends, and so becomes straight.
  struct Pull {
    double sum = 0, weight = 0;
    void Add(const Arrangement& all, const Item& item, const std::vector<size_t>& neighbours) {
      for (size_t n : neighbours) {
        const Item& other = all.items_[n];
        if (item.lane != 0 && other.lane != item.lane) continue;
        const bool passes = item.box == kNoBox && other.box == kNoBox;
        sum += other.x * (passes ? kStiffness : 1);
        weight += passes ? kStiffness : 1;
      }
    }
    double MeanOr(double otherwise) const { return weight > 0 ? sum / weight : otherwise; }
    static constexpr double kStiffness = 8;
  };

  void Reorder(size_t lane, size_t row, bool downwards) {
    std::vector<size_t>& cell = rows_[row].cells[lane];
    std::vector<std::pair<double, size_t>> wanted;
    for (size_t i : cell) {
      const Item& item = items_[i];
      Pull pull;
      pull.Add(*this, item, downwards ? item.up : item.down);
      wanted.emplace_back(pull.MeanOr(item.x), i);
    }
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t k = 0; k < cell.size(); ++k) cell[k] = wanted[k].second;
    Pack(lane, cell);
  }

  double Distance(size_t left, size_t right) const {
    bool edges = items_[left].box == kNoBox && items_[right].box == kNoBox;
    return (items_[left].width + items_[right].width) / 2 + (edges ? 0 : kBoxGap);
  }

  // Side by side around the middle.
  void Pack(size_t lane, const std::vector<size_t>& cell) {
    if (cell.empty()) return;
    double x = 0;
    for (size_t k = 0; k < cell.size(); ++k) {
      if (k > 0) x += Distance(cell[k - 1], cell[k]);
      items_[cell[k]].x = x;
    }
    double middle = lane == 0 ? middle_ : 0;
    for (size_t i : cell) items_[i].x += middle - x / 2;
  }

  // Brings each item as near as possible to the middle of its neighbours without changing the order
  // or coming too close: minus the distances, the places must not decrease, and the nearest such
  // places are found by averaging neighbours that are in the wrong order.
  void Straighten(const std::vector<size_t>& cell) {
    struct Run {
      double sum, weight;
      size_t count;
      double Mean() const { return sum / weight; }
    };
    std::vector<Run> runs;
    std::vector<double> offset(cell.size(), 0);
    for (size_t k = 0; k < cell.size(); ++k) {
      const Item& item = items_[cell[k]];
      if (k > 0) offset[k] = offset[k - 1] + Distance(cell[k - 1], cell[k]);
      Pull pull;
      pull.Add(*this, item, item.up);
      pull.Add(*this, item, item.down);
      double weight = std::max(pull.weight, 1.0);
      runs.push_back({(pull.MeanOr(item.x) - offset[k]) * weight, weight, 1});
      while (runs.size() > 1 && runs[runs.size() - 2].Mean() > runs.back().Mean()) {
        Run last = runs.back();
        runs.pop_back();
        runs.back() = {runs.back().sum + last.sum, runs.back().weight + last.weight,
                       runs.back().count + last.count};
      }
    }
    size_t k = 0;
    for (const Run& run : runs) {
      for (size_t end = k + run.count; k < end; ++k) items_[cell[k]].x = run.Mean() + offset[k];
    }
  }

  // Where there is room, an edge passes all its rows in one vertical line.
  void StraightenEdges(size_t lane) {
    std::vector<size_t> position(items_.size(), 0);
    for (const Row& row : rows_) {
      for (size_t k = 0; k < row.cells[lane].size(); ++k) position[row.cells[lane][k]] = k;
    }
    for (const std::vector<size_t>& path : paths_) {
      for (size_t begin = 1, end; begin + 1 < path.size(); begin = end) {
        for (end = begin + 1;
             end + 1 < path.size() && items_[path[end]].lane == items_[path[begin]].lane;)
          ++end;
        if (items_[path[begin]].lane != lane) continue;
        AlignVertically(std::span(path).subspan(begin, end - begin), position);
      }
    }
  }

  void AlignVertically(std::span<const size_t> passing, const std::vector<size_t>& position) {
    double lowest = -std::numeric_limits<double>::max(), highest = -lowest, sum = 0;
    for (size_t i : passing) {
      const std::vector<size_t>& cell = rows_[items_[i].row].cells[items_[i].lane];
      const size_t k = position[i];
      if (k > 0) lowest = std::max(lowest, items_[cell[k - 1]].x + Distance(cell[k - 1], i));
      if (k + 1 < cell.size())
        highest = std::min(highest, items_[cell[k + 1]].x - Distance(i, cell[k + 1]));
      sum += items_[i].x;
    }
    if (lowest > highest) return;
    const double x = std::clamp(sum / static_cast<double>(passing.size()), lowest, highest);
    for (size_t i : passing) items_[i].x = x;
  }

  // Side by side, the chunks all as wide as the widest.
  void PlaceLanes() {
    double widest = 0;
    for (size_t lane = 1; lane < lanes_.size(); ++lane) {
      FindExtent(lane);
      if (lanes_[lane].chunk >= 0)
        widest = std::max(widest, lanes_[lane].right - lanes_[lane].left);
    }
    double left = 0;
    std::vector<double> shift(lanes_.size(), 0);
    for (size_t lane = 1; lane < lanes_.size(); ++lane) {
      Lane& place = lanes_[lane];
      double width = place.chunk >= 0 ? widest : place.right - place.left;
      shift[lane] = left + width / 2 - (place.left + place.right) / 2;
      place.left = left;
      place.right = left + width;
      if (place.chunk >= 0) middle_ = place.right / 2;
      left += width + kLaneGap;
    }
    for (Item& item : items_) item.x += shift[item.lane];
  }

  void FindExtent(size_t lane) {
    double left = 0, right = 0;
    for (const Item& item : items_) {
      if (item.lane != lane) continue;
      left = std::min(left, item.x - item.width / 2 - kPadding);
      right = std::max(right, item.x + item.width / 2 + kPadding);
    }
    lanes_[lane].left = left;
    lanes_[lane].right = right;
  }

  const std::vector<Box>& boxes_;
  const std::vector<Edge>& edges_;
  std::vector<Lane> lanes_;
  std::vector<Row> rows_;
  std::vector<Item> items_;  // boxes first, each at its own number
  std::vector<std::vector<size_t>> paths_;
  std::vector<size_t> lane_of_, row_of_;  // by box
  std::vector<size_t> order_;             // boxes, each after those it needs
  double middle_ = 0;
};

}  // namespace

double TextWidth(std::string_view text, double size, bool bold) {
  auto characters = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  return static_cast<double>(characters) * size * (bold ? 0.64 : 0.58);
}

void BoxLayout::MoveTo(double left) {
  double first = std::numeric_limits<double>::max(), last = -first;
  for (const Item& item : items) {
    first = std::min(first, item.x - item.width / 2);
    last = std::max(last, item.x + item.width / 2);
  }
  for (const Lane& lane : lanes) {
    if (lane.chunk < 0) continue;
    first = std::min(first, lane.left);
    last = std::max(last, lane.right);
  }
  for (Item& item : items) item.x += left - first;
  for (Lane& lane : lanes) lane.left += left - first, lane.right += left - first;
  width = last - first;
}

BoxLayout ArrangeBoxes(const std::vector<Box>& boxes, const std::vector<Edge>& edges) {
  BoxLayout layout = Arrangement(boxes, edges).Take();
  layout.MoveTo(0);
  return layout;
}

}  // namespace gt
