#include "gt/report/memory_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "gt/base/byte_text.h"
#include "gt/base/fold_names.h"
#include "gt/base/text.h"
#include "gt/report/columns.h"
#include "gt/report/progress_bar.h"
#include "gt/report/xml_text.h"

namespace gt {
namespace {

using Json = nlohmann::ordered_json;

constexpr MemoryCategory CategoryAt(size_t i) { return static_cast<MemoryCategory>(i); }

std::string ShapeText(const TensorType& type, SymbolValues hints) {
  std::string text = fmt::format("{}[", DTypeName(type.dtype));
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ", ",
                   type.sizes[i].Evaluate(hints));
  }
  return text + "]";
}

MemoryRow RowOf(const StorageLife& life, const Graph& graph, SymbolValues hints) {
  MemoryRow row;
  row.category = life.category;
  row.shape = ShapeText(life.value->type(), hints);
  row.count = 1;
  row.bytes = life.bytes;
  if (const Node* producer = life.value->producer()) {
    row.module = producer->meta().module.str();
    row.op = producer->op().name.str();
    Recompute policy = producer->meta().recompute;
    if (policy != Recompute::kNone) row.policy = Spelling(policy);
  } else {
    const Input& input = *graph.inputs()[static_cast<size_t>(life.value->index())];
    row.module = input.name;
    row.op = Spelling(input.role);
  }
  return row;
}

// Everything about a row but its module and how much of it there is.
std::string KindOf(const MemoryRow& row) {
  return fmt::format("{}\n{}\n{}\n{}", row.op, row.shape, row.policy,
                     static_cast<int>(row.category));
}

void Merge(MemoryRow& into, const MemoryRow& row) {
  into.count += row.count;
  into.bytes += row.bytes;
}

std::vector<MemoryRow> MergeEqual(std::vector<MemoryRow> rows) {
  std::vector<MemoryRow> merged;
  std::unordered_map<std::string, size_t> places;
  for (MemoryRow& row : rows) {
    auto [place, fresh] = places.try_emplace(row.module + "\n" + KindOf(row), merged.size());
    if (fresh) {
      merged.push_back(std::move(row));
    } else {
      Merge(merged[place->second], row);
    }
  }
  return merged;
}

std::vector<MemoryRow> FoldLayers(const std::vector<MemoryRow>& rows) {
  std::vector<std::string> names, keys;
  for (const MemoryRow& row : rows) {
    names.push_back(row.module);
    keys.push_back(fmt::format("{}\n{}\n{}", KindOf(row), row.count, row.bytes));
  }
  std::vector<MemoryRow> folded;
  for (const FoldedName& name : FoldNames(names, keys)) {
    MemoryRow row = rows[name.members.front()];
    row.module = name.name;
    for (size_t i = 1; i < name.members.size(); ++i) Merge(row, rows[name.members[i]]);
    folded.push_back(std::move(row));
  }
  return folded;
}

// "aten::mm in layers.3.feed_forward.w2 (backward)"
std::string PlaceText(const Node& node) {
  std::string place = node.op().name.str();
  if (!node.meta().module.empty()) place += fmt::format(" in {}", node.meta().module.str());
  return place + fmt::format(" ({})", Spelling(node.meta().phase));
}

double Share(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

void AppendCategories(const MemoryCurve& curve, std::string& text) {
  for (size_t i = 0; i < curve.at_peak.size(); ++i) {
    if (curve.at_peak[i] == 0) continue;
    fmt::format_to(std::back_inserter(text), "  {:<22} {:>11} {:>6.1f} %\n",
                   EnumName(CategoryAt(i)), ByteText(curve.at_peak[i]),
                   100 * Share(curve.at_peak[i], curve.peak));
  }
}

std::string RowsText(std::span<const MemoryRow> rows, size_t top) {
  Columns columns(3);
  columns.Add({"bytes", "count", "each", "what", "shape", "operator", "module"});
  size_t shown = std::min(top, rows.size());
  for (const MemoryRow& row : rows.first(shown)) {
    std::string what(EnumName(row.category));
    if (!row.policy.empty()) what += fmt::format(" ({})", row.policy);
    columns.Add({ByteText(row.bytes), fmt::format("x{}", row.count),
                 ByteText(row.bytes / row.count), std::move(what), row.shape, row.op, row.module});
  }
  int64_t count = 0, bytes = 0;
  for (const MemoryRow& row : rows.subspan(shown)) {
    count += row.count;
    bytes += row.bytes;
  }
  if (count > 0) columns.Add({ByteText(bytes), fmt::format("x{}", count), "", "all others"});
  return columns.Text();
}

// Consecutive nodes of one phase.
struct PhaseRun {
  Phase phase;
  int64_t first, last;
};

std::vector<PhaseRun> PhaseRuns(const Graph& graph) {
  std::vector<PhaseRun> runs;
  int64_t position = 0;
  for (const Node* node : graph.nodes()) {
    Phase phase = node->meta().phase;
    if (runs.empty() || runs.back().phase != phase) runs.push_back({phase, position, position});
    runs.back().last = position++;
  }
  return runs;
}

// A vertical slice of the picture: the largest of the nodes that fall into it.
struct Slice {
  int32_t position = 0;
  CategoryBytes bytes = {};
};

// One slice for each node, or `most` slices with the nodes divided evenly.
std::vector<Slice> SlicesOf(const MemoryCurve& curve, size_t most) {
  size_t nodes = curve.during.size();
  std::vector<Slice> slices(std::min(nodes, most));
  for (size_t i = 0; i < slices.size(); ++i) {
    auto begin = curve.during.begin() + static_cast<ptrdiff_t>(i * nodes / slices.size());
    auto end = curve.during.begin() + static_cast<ptrdiff_t>((i + 1) * nodes / slices.size());
    slices[i].position = static_cast<int32_t>(std::max_element(begin, end) - curve.during.begin());
    slices[i].bytes = curve.constant;
    slices[i].bytes[static_cast<size_t>(MemoryCategory::kTemporary)] +=
        curve.scratch[static_cast<size_t>(slices[i].position)];
  }
  // A storage is alive in consecutive slices: it enters at the first and leaves after the last.
  std::vector<CategoryBytes> changes(slices.size() + 1, CategoryBytes{});
  auto slice_from = [&slices](int64_t position) {  // the first slice at or after a position
    auto at = std::partition_point(slices.begin(), slices.end(), [position](const Slice& slice) {
      return slice.position < position;
    });
    return static_cast<size_t>(at - slices.begin());
  };
  for (const StorageLife& life : curve.storages) {
    if (life.first < 0) continue;
    auto category = static_cast<size_t>(life.category);
    changes[slice_from(life.first)][category] += life.bytes;
    changes[slice_from(int64_t{life.last} + 1)][category] -= life.bytes;
  }
  CategoryBytes alive = {};
  for (size_t i = 0; i < slices.size(); ++i) {
    for (size_t c = 0; c < alive.size(); ++c) {
      alive[c] += changes[i][c];
      slices[i].bytes[c] += alive[c];
    }
  }
  return slices;
}

struct Unit {
  std::string_view name;
  double bytes;
};

Unit UnitFor(int64_t bytes) {
  for (Unit unit : {Unit{"GiB", 1LL << 30}, Unit{"MiB", 1LL << 20}, Unit{"KiB", 1LL << 10}}) {
    if (static_cast<double>(bytes) >= unit.bytes) return unit;
  }
  return {"B", 1};
}

// A round distance between marks so that there are four to eight up to `highest`.
double TickStep(double highest) {
  double rough = highest / 8;
  double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

constexpr std::array<std::string_view, kMemoryCategoryCount> kColors = {
    "#4c566a", "#7b88a1", "#93a1b8", "#b39ac0", "#6d8f8c", "#a3b1c6", "#c9d2de", "#dde3ea",
    "#d9822b", "#2b7bba", "#7fb3d9", "#3a9d5d", "#8e5ea2", "#b0a060", "#c8453b"};

// The picture. Coordinates grow to the right and down; the plot is a box inside of it.
class MemoryPlot {
 public:
  MemoryPlot(const Graph& graph, const MemoryCurve& curve)
      : graph_(graph),
        curve_(curve),
        slices_(SlicesOf(curve, kMostSlices)),
        unit_(UnitFor(curve.peak)),
        highest_(std::max(1.0, static_cast<double>(curve.peak)) * 1.08) {}

  std::string Draw(const std::string& title) {
    Put("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" "
        "height=\"{:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n",
        kWidth, kHeight, kWidth, kHeight);
    Put("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    PutText(kLeft, 22, "start", title, " font-size=\"15\" font-weight=\"bold\"");
    DrawPhases();
    DrawAreas();
    DrawAxes();
    DrawPeak();
    DrawLegend();
    Put("</svg>\n");
    return std::move(svg_);
  }

 private:
  static constexpr size_t kMostSlices = 600;
  static constexpr double kWidth = 1080, kHeight = 460;
  static constexpr double kLeft = 70, kRight = 830, kTop = 70, kBottom = 410;
  static constexpr double kLegend = 850;

  template <typename... Args>
  void Put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
  }
  void PutText(double x, double y, std::string_view anchor, const std::string& text,
               std::string_view attributes = "") {
    Put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
        attributes, XmlText(text));
  }

  // Of the left edge of slice i; of the right edge of the last with i = their number.
  double SliceX(size_t i) const {
    return kLeft + (kRight - kLeft) * static_cast<double>(i) / static_cast<double>(slices_.size());
  }
  double NodeX(int64_t position) const {
    return kLeft + (kRight - kLeft) * static_cast<double>(position) /
                       static_cast<double>(curve_.during.size());
  }
  double Y(double bytes) const { return kBottom - (kBottom - kTop) * bytes / highest_; }

  // Bands behind the curve. With a loss in chunks the phases take turns: runs too narrow to be seen
  // go with the one before.
  void DrawPhases() {
    constexpr double kNarrowest = 4, kNarrowestLabel = 55;
    std::vector<PhaseRun> bands;
    for (const PhaseRun& run : PhaseRuns(graph_)) {
      bool narrow = NodeX(run.last + 1) - NodeX(run.first) < kNarrowest;
      if (!bands.empty() && (narrow || bands.back().phase == run.phase)) {
        bands.back().last = run.last;
      } else {
        bands.push_back(run);
      }
    }
    for (const PhaseRun& band : bands) {
      double x = NodeX(band.first), width = NodeX(band.last + 1) - x;
      std::string_view color = band.phase == Phase::kForward ? "#f2f6fb"
                               : band.phase == Phase::kLoss  ? "#fff6dd"
                                                             : "#fbf1f1";
      Put("<rect class=\"phase\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
          "fill=\"{}\"/>\n",
          x, kTop, width, kBottom - kTop, color);
      if (width >= kNarrowestLabel) {
        PutText(x + width / 2, kBottom + 16, "middle", std::string(Spelling(band.phase)),
                " fill=\"#666666\"");
      }
    }
  }

  void DrawAreas() {
    std::vector<double> below(slices_.size(), 0.0), top(slices_.size(), 0.0);
    for (size_t c = 0; c < kColors.size(); ++c) {
      bool any = false;
      for (size_t i = 0; i < slices_.size(); ++i) {
        any |= slices_[i].bytes[c] > 0;
        top[i] = below[i] + static_cast<double>(slices_[i].bytes[c]);
      }
      if (!any) continue;
      Put("<path class=\"area\" fill=\"{}\" d=\"{}\"/>\n", kColors[c], Area(below, top));
      below = top;
    }
  }

  // Along the top from left to right and back along the bottom, in steps.
  std::string Area(std::span<const double> below, std::span<const double> top) const {
    std::string path = fmt::format("M{:.1f} {:.1f}", SliceX(0), Y(top[0]));
    auto out = std::back_inserter(path);
    for (size_t i = 0; i < top.size(); ++i) {
      bool flat = i + 1 < top.size() && top[i + 1] == top[i];
      if (!flat) fmt::format_to(out, "H{:.1f}", SliceX(i + 1));
      if (!flat && i + 1 < top.size()) fmt::format_to(out, "V{:.1f}", Y(top[i + 1]));
    }
    fmt::format_to(out, "V{:.1f}", Y(below.back()));
    for (size_t i = below.size(); i-- > 0;) {
      bool flat = i > 0 && below[i - 1] == below[i];
      if (!flat) fmt::format_to(out, "H{:.1f}", SliceX(i));
      if (!flat && i > 0) fmt::format_to(out, "V{:.1f}", Y(below[i - 1]));
    }
    return path + "Z";
  }

  void DrawAxes() {
    double step = TickStep(highest_ / unit_.bytes);
    for (int i = 0; i * step * unit_.bytes <= highest_; ++i) {
      double y = Y(i * step * unit_.bytes);
      Put("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#00000022\"/>\n",
          kLeft, y, kRight, y);
      PutText(kLeft - 8, y + 4, "end", fmt::format("{:g}", i * step));
    }
    PutText(kLeft - 8, kTop - 12, "end", std::string(unit_.name));
    PutText((kLeft + kRight) / 2, kBottom + 36, "middle",
            fmt::format("the {} nodes of the step, in order", curve_.during.size()));
    Put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
        "stroke=\"#888888\"/>\n",
        kLeft, kTop, kRight - kLeft, kBottom - kTop);
  }

  void DrawPeak() {
    if (curve_.peak_node == nullptr) return;
    double x = NodeX(curve_.peak_position) + (NodeX(1) - NodeX(0)) / 2;
    double y = Y(static_cast<double>(curve_.peak));
    Put("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#222222\" "
        "stroke-dasharray=\"3 3\"/>\n",
        x, kTop - 10, x, kBottom);
    Put("<circle class=\"peak\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#222222\"/>\n", x, y);
    // At the left edge, where the longest names of operators and modules have room.
    constexpr size_t kLongest = 130;
    PutText(
        kLeft, kTop - 26, "start",
        FittedTo(fmt::format("peak {}: {}", ByteText(curve_.peak), PlaceText(*curve_.peak_node)),
                 kLongest));
  }

  // From the top of the stack down, with what each has at the peak.
  void DrawLegend() {
    double y = kTop + 12;
    PutText(kLegend, y, "start", "at the peak", " fill=\"#666666\"");
    for (size_t c = kColors.size(); c-- > 0;) {
      auto has = [c](const Slice& slice) { return slice.bytes[c] > 0; };
      if (std::none_of(slices_.begin(), slices_.end(), has)) continue;
      y += 20;
      Put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", kLegend,
          y - 10, kColors[c]);
      PutText(kLegend + 18, y, "start", std::string(EnumName(CategoryAt(c))));
      PutText(kWidth - 10, y, "end", ByteText(curve_.at_peak[c]));
    }
  }

  const Graph& graph_;
  const MemoryCurve& curve_;
  std::vector<Slice> slices_;
  Unit unit_;
  double highest_;  // bytes at the upper edge
  std::string svg_;
};

Json PeakJson(const MemoryCurve& curve) {
  Json peak = {{"bytes", curve.peak}, {"position", curve.peak_position}};
  if (const Node* node = curve.peak_node) {
    peak["value"] = node->result_count() > 0 ? node->result()->name() : "";
    peak["operator"] = node->op().name.str();
    peak["module"] = node->meta().module.str();
    peak["phase"] = Spelling(node->meta().phase);
  }
  return peak;
}

}  // namespace

std::vector<MemoryRow> RowsAtPeak(const Graph& graph, const MemoryCurve& curve) {
  std::vector<MemoryRow> rows;
  rows.reserve(curve.alive_at_peak.size());
  for (int32_t index : curve.alive_at_peak) {
    rows.push_back(RowOf(curve.storages[static_cast<size_t>(index)], graph, curve.symbols));
  }
  rows = FoldLayers(MergeEqual(std::move(rows)));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const MemoryRow& a, const MemoryRow& b) { return a.bytes > b.bytes; });
  return rows;
}

std::string MemoryTable(const Graph& graph, const MemoryCurve& curve, size_t top) {
  std::string text = fmt::format("peak: {} on {}", ByteText(curve.peak),
                                 curve.device == DeviceKind::kCuda ? "the GPU" : "the CPU");
  if (curve.peak_node != nullptr) {
    fmt::format_to(std::back_inserter(text), ", while node {} of {} runs: {}",
                   curve.peak_position + 1, curve.during.size(), PlaceText(*curve.peak_node));
  }
  if (curve.recorded_peak > curve.peak) {
    fmt::format_to(std::back_inserter(text), "\nwith CUDA graphs: {}, {} of it in their memory",
                   ByteText(curve.recorded_peak), ByteText(curve.recording_pool));
  }
  return text + "\n" + AliveTable(graph, curve, top);
}

std::string MemoryLine(const MemoryCurve& curve) {
  constexpr double kLeastShare = 0.01;
  std::vector<std::string> parts;
  int64_t others = 0;
  for (size_t i = 0; i < curve.at_peak.size(); ++i) {
    if (Share(curve.at_peak[i], curve.peak) < kLeastShare) {
      others += curve.at_peak[i];
    } else {
      parts.push_back(fmt::format("{} {}", EnumName(CategoryAt(i)), ByteText(curve.at_peak[i])));
    }
  }
  if (others > 0) parts.push_back(fmt::format("others {}", ByteText(others)));
  if (parts.empty()) return ByteText(curve.peak);
  return fmt::format("{}: {}", ByteText(curve.peak), Join(parts, ", "));
}

std::string AliveTable(const Graph& graph, const MemoryCurve& curve, size_t top) {
  std::string text;
  AppendCategories(curve, text);
  if (curve.elsewhere_peak > 0) {
    fmt::format_to(std::back_inserter(text), "  besides, at most {} on other devices\n",
                   ByteText(curve.elsewhere_peak));
  }
  std::vector<MemoryRow> rows = RowsAtPeak(graph, curve);
  if (top == 0 || rows.empty()) return text;
  return text + "tensors alive then\n" + RowsText(rows, top);
}

std::string MemoryJson(const Graph& graph, const MemoryCurve& curve) {
  Json json;
  json["device"] = DeviceName({curve.device});
  json["peak"] = PeakJson(curve);
  Json& categories = json["categories"] = Json::object();
  for (size_t i = 0; i < curve.at_peak.size(); ++i) {
    categories[std::string(EnumName(CategoryAt(i)))] = curve.at_peak[i];
  }
  json["elsewhere_peak"] = curve.elsewhere_peak;
  json["recorded_peak"] = curve.recorded_peak;
  json["recording_pool"] = curve.recording_pool;
  Json& phases = json["phases"] = Json::array();
  for (const PhaseRun& run : PhaseRuns(graph)) {
    phases.push_back({{"phase", Spelling(run.phase)}, {"first", run.first}, {"last", run.last}});
  }
  json["during"] = curve.during;
  json["after"] = curve.after;
  Json& tensors = json["tensors"] = Json::array();
  for (const MemoryRow& row : RowsAtPeak(graph, curve)) {
    tensors.push_back({{"module", row.module},
                       {"operator", row.op},
                       {"shape", row.shape},
                       {"policy", row.policy},
                       {"category", EnumName(row.category)},
                       {"count", row.count},
                       {"bytes", row.bytes}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string MemorySvg(const Graph& graph, const MemoryCurve& curve, const std::string& title) {
  return MemoryPlot(graph, curve).Draw(title);
}

}  // namespace gt
