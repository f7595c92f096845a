// In three steps: which nodes share a box (report/graph_boxes.h), where the boxes are
// (report/box_layout.h), and how that is written down (Drawing).
#include "gt/report/graph_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "gt/report/box_layout.h"
#include "gt/report/graph_boxes.h"
#include "gt/report/xml_text.h"

namespace gt {
namespace {

struct BoxStyle {
  std::string_view legend, fill, stroke;
};
constexpr std::array<BoxStyle, 13> kStyles = {{
    {"compute", "#eaf1fb", "#5b84b8"},
    {"dispatch, combine", "#fff6dc", "#c79a2e"},
    {"sizes read by the host", "#fde4e1", "#c5392f"},
    {"all_to_all", "#f9b266", "#b8640c"},
    {"all_gather", "#a9d6c4", "#2f7f66"},
    {"reduce_scatter", "#d3bfea", "#7348a8"},
    {"other collective", "#f3c3dd", "#a63f7a"},
    {"copy between device and host", "#cfe8ef", "#2b7d93"},
    {"split into chunks", "#343f56", "#1d2433"},
    {"chunks put together", "#27605c", "#153c39"},
    {"buffer update", "#dfeecb", "#63892c"},
    {"parameters, buffers", "#f4f4f4", "#9a9a9a"},
    {"rest of the step", "#ffffff", "#555555"},
}};
const BoxStyle& StyleOf(BoxKind kind) { return kStyles[static_cast<size_t>(kind)]; }

constexpr double kLineHeight = 15;
double HeightOf(const Box& box) {
  return kLineHeight * static_cast<double>(1 + box.lines.size()) + kPadding;
}

class Drawing {
 public:
  Drawing(const std::vector<Box>& boxes, const std::vector<Edge>& edges, const ShapeEnv& shapes)
      : boxes_(boxes), edges_(edges), shapes_(shapes), layout_(ArrangeBoxes(boxes, edges)) {}

  std::string Draw(const std::string& title) {
    constexpr double kNarrowest = 640;
    double content = layout_.width;
    width_ = std::max({content, kNarrowest, TextWidth(title, 15, true)}) + 2 * kMargin;
    layout_.MoveTo((width_ - content) / 2);
    std::string legend = Legend(44);
    PlaceRows();
    Put("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\" "
        "font-size=\"{2}\">\n",
        width_, height_, kLineSize);
    Put("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    Put("<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
        "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#66707f\"/></marker>"
        "</defs>\n");
    PutText(kMargin, 26, "start", title, " font-size=\"15\" font-weight=\"bold\"");
    svg_ += legend;
    DrawLanes();
    for (size_t e = 0; e < edges_.size(); ++e) DrawEdge(e);
    for (size_t b = 0; b < boxes_.size(); ++b) DrawBox(b);
    Put("</svg>\n");
    return std::move(svg_);
  }

 private:
  static constexpr double kMargin = 24, kRowGap = 34, kLaneHeader = 26;
  using Row = BoxLayout::Row;
  using Item = BoxLayout::Item;

  template <typename... Args>
  void Put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
  }
  void PutText(double x, double y, std::string_view anchor, std::string_view text,
               std::string_view attributes = "") {
    Put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
        attributes, XmlText(text));
  }

  // The colours in use, in as many lines as they need. Sets where the picture itself begins.
  std::string Legend(double y) {
    std::vector<bool> used(kStyles.size(), false);
    for (const Box& box : boxes_) used[static_cast<size_t>(box.kind)] = true;
    std::string before = std::exchange(svg_, "");
    double x = kMargin;
    for (size_t kind = 0; kind < kStyles.size(); ++kind) {
      if (!used[kind]) continue;
      const BoxStyle& style = kStyles[kind];
      double width = TextWidth(style.legend, kLineSize) + 36;
      if (x > kMargin && x + width > width_ - kMargin) x = kMargin, y += 20;
      Put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"12\" rx=\"3\" fill=\"{}\" "
          "stroke=\"{}\"/>\n",
          x, y, style.fill, style.stroke);
      PutText(x + 20, y + 10, "start", style.legend, " fill=\"#333333\"");
      x += width;
    }
    first_row_ = y + 44;
    return std::exchange(svg_, std::move(before));
  }

  void PlaceRows() {
    double y = first_row_;
    bool chunked = false;
    for (Row& row : layout_.rows) {
      if (row.chunked && !chunked) y += kLaneHeader;
      if (!row.chunked && chunked) y += kPadding;
      chunked = row.chunked;
      row.top = y;
      for (const std::vector<size_t>& cell : row.cells) {
        for (size_t i : cell) {
          if (layout_.items[i].box != BoxLayout::kNoBox)
            row.height = std::max(row.height, HeightOf(boxes_[layout_.items[i].box]));
        }
      }
      y += row.height + kRowGap;
    }
    height_ = y - kRowGap + kMargin + (chunked ? kPadding : 0);
  }

  void DrawLanes() {
    const std::vector<Row>& rows = layout_.rows;
    for (size_t first = 0; first < rows.size(); ++first) {
      if (!rows[first].chunked || (first > 0 && rows[first - 1].chunked)) continue;
      size_t last = first;
      while (last + 1 < rows.size() && rows[last + 1].chunked) ++last;
      double top = rows[first].top - kLaneHeader;
      double bottom = rows[last].top + rows[last].height + kPadding;
      for (const BoxLayout::Lane& lane : layout_.lanes) {
        if (lane.chunk < 0) continue;
        Put("<rect class=\"lane\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
            "rx=\"8\" fill=\"#f6f7f9\" stroke=\"#dfe3e8\"/>\n",
            lane.left, top, lane.right - lane.left, bottom - top);
        PutText(lane.left + kPadding, top + 17, "start", fmt::format("chunk {}", lane.chunk),
                " font-size=\"12\" font-weight=\"bold\" fill=\"#6b7685\"");
      }
    }
  }

  void DrawBox(size_t b) {
    const Box& box = boxes_[b];
    const BoxStyle& style = StyleOf(box.kind);
    double x = layout_.items[b].x, width = layout_.items[b].width, top = TopOf(b);
    bool dark = box.kind == BoxKind::kSplit || box.kind == BoxKind::kJoin;
    bool outside = box.nodes.empty();
    Put("<g class=\"box\"><title>{}</title>\n", XmlText(HoverText(box)));
    Put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{}\" fill=\"{}\" "
        "stroke=\"{}\"{}/>\n",
        x - width / 2, top, width, HeightOf(box), outside ? 12 : 5, style.fill, style.stroke,
        outside ? " stroke-dasharray=\"4 3\"" : "");
    double y = top + kPadding / 2 + 11.5;
    PutText(x, y, "middle", box.title,
            fmt::format(" font-size=\"{}\" font-weight=\"{}\" fill=\"{}\"", kTitleSize,
                        outside ? "normal" : "bold", dark ? "#ffffff" : "#1b2330"));
    for (const std::string& line : box.lines) {
      y += kLineHeight;
      PutText(x, y, "middle", line, dark ? " fill=\"#dfe3ee\"" : " fill=\"#4a5362\"");
    }
    Put("</g>\n");
  }

  static std::string HoverText(const Box& box) { return box.title + "\n" + Join(box.hover, "\n"); }

  double TopOf(size_t b) const {
    const Row& row = layout_.rows[layout_.items[b].row];
    return row.top + (row.height - HeightOf(boxes_[b])) / 2;
  }

  // Straight down through its place in each row, bent only between rows: it cannot touch a box.
  void DrawEdge(size_t e) {
    const Edge& edge = edges_[e];
    const std::vector<size_t>& path = layout_.paths[e];
    const std::vector<Row>& rows = layout_.rows;
    double x = Port(edge.from, path[1], /*below=*/true);
    std::string d =
        fmt::format("M{:.1f} {:.1f}", x, TopOf(edge.from) + HeightOf(boxes_[edge.from]));
    for (size_t k = 0; k + 1 < path.size(); ++k) {
      const Row& row = rows[layout_.items[path[k]].row];
      bool arrives = k + 2 == path.size();
      double next =
          arrives ? Port(edge.to, path[k], /*below=*/false) : layout_.items[path[k + 1]].x;
      double from = row.top + row.height, to = rows[layout_.items[path[k + 1]].row].top;
      fmt::format_to(std::back_inserter(d), "V{:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}",
                     from, x, (from + to) / 2, next, (from + to) / 2, next, to);
      x = next;
    }
    fmt::format_to(std::back_inserter(d), "V{:.1f}", TopOf(edge.to));
    bool faint = boxes_[edge.from].kind == BoxKind::kParameters;
    Put("<path class=\"edge\" d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.3\"{} "
        "marker-end=\"url(#arrow)\"><title>{}</title></path>\n",
        d,
        edge.values.empty() ? "#c5392f"
        : faint             ? "#b4bac4"
                            : "#66707f",
        edge.values.empty() ? " stroke-dasharray=\"2 3\"" : "", XmlText(EdgeText(edge)));
  }

  std::string EdgeText(const Edge& edge) const {
    if (edge.values.empty()) return "sizes read by the host";
    std::vector<std::string> texts;
    for (const Value* value : edge.values) texts.push_back(ValueText(*value, shapes_));
    return Join(texts, "\n");
  }

  // Where the edge to or from the item `other` touches the box: in the order in which the edges
  // spread out.
  double Port(size_t box, size_t other, bool below) const {
    const Item& item = layout_.items[box];
    std::vector<size_t> ends = below ? item.down : item.up;
    std::stable_sort(ends.begin(), ends.end(), [this](size_t a, size_t b) {
      return layout_.items[a].x < layout_.items[b].x;
    });
    auto place = static_cast<double>(std::find(ends.begin(), ends.end(), other) - ends.begin());
    auto count = static_cast<double>(ends.size());
    double spacing = std::min(18.0, (item.width - 2 * kPadding) / count);
    return item.x + (place - (count - 1) / 2) * spacing;
  }

  const std::vector<Box>& boxes_;
  const std::vector<Edge>& edges_;
  const ShapeEnv& shapes_;
  BoxLayout layout_;
  double width_ = 0, height_ = 0, first_row_ = 0;
  std::string svg_;
};

}  // namespace

std::string GraphPicture(const Graph& graph, const PictureOptions& options) {
  const GraphBoxes shown = GatherBoxes(graph, options);
  std::string title = options.title;
  if (title.empty()) {
    title = fmt::format("{} of graph {}", options.module_fqn, graph.name());
    if (options.phase != PicturePhase::kAll) title += fmt::format(", {}", EnumName(options.phase));
  }
  return Drawing(shown.boxes, shown.edges, graph.shapes()).Draw(title);
}

}  // namespace gt
