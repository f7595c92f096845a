// In three steps: which nodes are shown (box_region.h), which of them share a box (box_groups.h),
// and, here, what the boxes exchange and say.
#include "gt/report/graph_boxes.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/report/box_groups.h"
#include "gt/report/box_region.h"
#include "gt/report/box_text.h"
#include "gt/report/box_titles.h"

namespace gt {
namespace {

using boxes::Below;
using boxes::Grouping;
using boxes::Likeness;
using boxes::Region;
using boxes::TypeText;

// Everything that is drawn: the region's groups, its inputs and outputs, and the edges.
class Boxes {
 public:
  Boxes(const Graph& graph, const PictureOptions& options)
      : graph_(graph), shapes_(graph.shapes()), options_(options), region_(graph, options) {
    MakeGroups();
    CheckCount(boxes_.size());
    CountLeaving();
    AddIncoming();
    AddLeaving();
    CheckCount(boxes_.size());
    for (size_t i = 0; i < region_.size(); ++i) {
      for (const Region::Need& need : region_.needs(i)) {
        Connect(box_of_[need.node], box_of_[i], need.value);
      }
    }
    Describe();
  }

  GraphBoxes Take() && {
    std::vector<Edge> edges;
    for (const auto& [ends, edge] : edges_)
      edges.push_back({edge.from, edge.to, Unique(edge.values)});
    return {std::move(boxes_), std::move(edges)};
  }

 private:
  // What a box exchanges with the rest of the step.
  struct Traffic {
    size_t saved = 0;                     // values that the backward reads
    size_t reads_saved = 0;               // values of the forward
    std::vector<const Value*> produced;   // everything that leaves the box
    std::vector<const Value*> leaving;    // of these, what leaves the region
    std::map<std::string, bool> readers;  // modules of who reads that
    std::vector<const std::string*> gradients;
    std::vector<const Value*> gradient_values;
  };
  // Values that come from one place and go to the same boxes.
  struct Source {
    BoxKind kind;
    std::string origin;
    std::vector<size_t> readers;
    bool operator<(const Source& other) const {
      return std::tie(kind, origin, readers) < std::tie(other.kind, other.origin, other.readers);
    }
  };

  void MakeGroups() {
    Grouping grouping(region_, options_.groups);
    std::unordered_map<size_t, size_t> known;  // group to box, in the order of the graph
    for (size_t i = 0; i < region_.size(); ++i) {
      auto [found, is_new] = known.try_emplace(grouping.GroupOf(i), boxes_.size());
      if (is_new) {
        const Likeness& like = grouping.LikenessOfNode(i);
        Box& box = boxes_.emplace_back();
        box.kind = like.kind;
        box.chunk = like.chunk;
        box.backward = like.phase == Phase::kBackward;
        likeness_.push_back(like);
      }
      box_of_.push_back(found->second);
      boxes_[found->second].nodes.push_back(&region_.node(i));
    }
    traffic_.resize(boxes_.size());
  }

  static bool IsBackward(const Node& node) { return node.meta().phase == Phase::kBackward; }

  void CountLeaving() {
    for (size_t i = 0; i < region_.size(); ++i) {
      const Node& node = region_.node(i);
      for (int32_t r = 0; r < node.result_count(); ++r) CountUses(i, *node.result(r));
    }
  }

  void CountUses(size_t i, const Value& value) {
    Traffic& traffic = traffic_[box_of_[i]];
    bool saved = false, leaves = false, produced = false;
    for (const Use& use : value.uses()) {
      if (use.node() == nullptr) {
        const Output& output = *graph_.outputs()[static_cast<size_t>(use.index())];
        produced = true;
        if (output.role == OutputRole::kGradient) {
          traffic.gradients.push_back(&output.name);
          traffic.gradient_values.push_back(&value);
        } else if (output.role != OutputRole::kBufferUpdate) {
          leaves = true;
        }
      } else if (auto user = region_.PositionOf(use.node())) {
        produced |= box_of_[*user] != box_of_[i];
      } else if (IsBackward(*use.node()) && !IsBackward(region_.node(i))) {
        saved = true;
      } else {
        leaves = true;
        traffic.readers[use.node()->meta().module.str()] = true;
      }
    }
    traffic.saved += saved ? 1 : 0;
    if (leaves) traffic.leaving.push_back(&value);
    if (leaves || produced) traffic.produced.push_back(&value);
  }

  void AddIncoming() {
    std::vector<const Value*> incoming;  // in the order in which they are read first
    std::unordered_map<const Value*, std::vector<size_t>> readers;
    for (size_t i = 0; i < region_.size(); ++i) {
      const Node& node = region_.node(i);
      for (int32_t k = 0; k < node.operand_count(); ++k) {
        const Value* value = node.operand(k);
        if (value->producer() != nullptr && region_.Contains(*value->producer())) continue;
        auto [found, is_new] = readers.try_emplace(value);
        if (is_new) incoming.push_back(value);
        found->second.push_back(box_of_[i]);
      }
    }
    std::map<Source, std::vector<const Value*>> sources;
    std::vector<const std::pair<const Source, std::vector<const Value*>>*> in_order;
    for (const Value* value : incoming) {
      std::vector<size_t>& boxes = readers[value];
      std::sort(boxes.begin(), boxes.end());
      boxes.erase(std::unique(boxes.begin(), boxes.end()), boxes.end());
      if (CountSaved(*value, boxes)) continue;
      Source source = SourceOf(*value);
      source.readers = boxes;
      auto [found, is_new] = sources.try_emplace(std::move(source));
      if (is_new) in_order.push_back(&*found);
      found->second.push_back(value);
    }
    CheckCount(boxes_.size() + in_order.size());
    for (const auto* source : in_order) AddSource(source->first, source->second);
  }

  // The backward reads most of what the forward has made; edges for all that would hide the rest.
  bool CountSaved(const Value& value, const std::vector<size_t>& readers) {
    if (value.is_input() || IsBackward(*value.producer())) return false;
    auto is_backward = [this](size_t box) { return boxes_[box].backward; };
    if (!std::all_of(readers.begin(), readers.end(), is_backward)) return false;
    for (size_t reader : readers) ++traffic_[reader].reads_saved;
    return true;
  }

  Source SourceOf(const Value& value) const {
    if (const Node* producer = value.producer()) {
      return {BoxKind::kOutside, fmt::format("from {}", ModuleText(producer->meta().module)), {}};
    }
    InputRole role = graph_.inputs()[static_cast<size_t>(value.index())]->role;
    bool stays = role == InputRole::kParameter || role == InputRole::kBuffer;
    std::string_view noun = role == InputRole::kParameter ? "parameter"
                            : role == InputRole::kBuffer  ? "buffer"
                            : role == InputRole::kInput   ? "input"
                                                          : "constant";
    return {stays ? BoxKind::kParameters : BoxKind::kOutside, std::string(noun), {}};
  }

  static std::string ModuleText(Name module) { return module.empty() ? "the root" : module.str(); }

  void AddSource(const Source& source, const std::vector<const Value*>& values) {
    Box box;
    box.kind = source.kind;
    box.chunk = CommonChunk(source.readers);
    box.backward = boxes_[source.readers.front()].backward;  // of those in the order of the graph
    const Value& first = *values.front();
    if (!first.is_input()) {
      box.title = source.origin;
      if (values.size() > 1) box.lines.push_back(Counted(std::ssize(values), "value"));
    } else if (values.size() == 1) {
      const std::string& name = graph_.inputs()[static_cast<size_t>(first.index())]->name;
      box.title = fmt::format("{} {}", source.origin, Below(region_.root(), name));
    } else {
      box.title = Counted(std::ssize(values), source.origin);
    }
    AddValueLines(values, box);
    boxes_.push_back(std::move(box));
    for (size_t reader : source.readers) {
      for (const Value* value : values) Connect(boxes_.size() - 1, reader, value);
    }
  }

  int32_t CommonChunk(const std::vector<size_t>& boxes) const {
    int32_t chunk = boxes_[boxes.front()].chunk;
    for (size_t box : boxes) {
      if (boxes_[box].chunk != chunk) return -1;
    }
    return chunk;
  }

  // "S(0)R" of a placed step; empty: not known.
  std::string PlacementOf(const Value& value) const {
    if (value.is_input()) {
      return graph_.inputs()[static_cast<size_t>(value.index())]->placement.str();
    }
    return boxes::PlacementOf(value);
  }
  // The placements of several values, each once.
  std::string PlacementsOf(const std::vector<const Value*>& values) const {
    std::vector<std::string> found;
    for (const Value* value : values) {
      std::string placement = PlacementOf(*value);
      if (!placement.empty() && std::find(found.begin(), found.end(), placement) == found.end()) {
        found.push_back(std::move(placement));
      }
    }
    return found.empty() ? "" : "placed " + Join(found, ", ");
  }

  void AddValueLines(const std::vector<const Value*>& values, Box& box) const {
    if (values.size() == 1) box.lines.push_back(TypeText(values[0]->type(), shapes_));
    AddPlacements(values, box);
    for (const Value* value : values) {
      std::string text = ValueText(*value, shapes_);
      if (value->is_input() && !PlacementOf(*value).empty()) text += " " + PlacementOf(*value);
      box.hover.push_back(std::move(text));
    }
  }
  void AddPlacements(const std::vector<const Value*>& values, Box& box) const {
    if (std::string text = PlacementsOf(values); !text.empty())
      box.lines.push_back(std::move(text));
  }

  void AddLeaving() {
    for (size_t from = 0; from < traffic_.size(); ++from) {
      const Traffic& traffic = traffic_[from];
      if (!traffic.leaving.empty()) AddSink(from, ReadersText(traffic), traffic.leaving);
      if (traffic.gradients.empty()) continue;
      AddSink(from,
              traffic.gradients.size() == 1
                  ? fmt::format("gradient of {}", Below(region_.root(), *traffic.gradients[0]))
                  : Counted(std::ssize(traffic.gradients), "gradient"),
              traffic.gradient_values);
    }
  }

  static std::string ReadersText(const Traffic& traffic) {
    if (traffic.readers.empty()) return "result of the step";
    const std::string& first = traffic.readers.begin()->first;
    std::string text = fmt::format("to {}", first.empty() ? "the root" : first);
    if (traffic.readers.size() == 1) return text;
    return fmt::format("{} and {} more", text, traffic.readers.size() - 1);
  }

  void AddSink(size_t from, std::string title, const std::vector<const Value*>& values) {
    Box box;
    box.kind = BoxKind::kOutside;
    box.chunk = boxes_[from].chunk;
    box.backward = boxes_[from].backward;
    box.title = std::move(title);
    AddValueLines(values, box);
    boxes_.push_back(std::move(box));
    for (const Value* value : values) Connect(from, boxes_.size() - 1, value);
  }

  void Connect(size_t from, size_t to, const Value* value) {
    if (from == to) return;
    Edge& edge = edges_[{from, to}];
    edge.from = from;
    edge.to = to;
    if (value != nullptr) edge.values.push_back(value);
  }

  static std::vector<const Value*> Unique(const std::vector<const Value*>& values) {
    std::vector<const Value*> unique;
    std::unordered_set<const Value*> seen;
    for (const Value* value : values) {
      if (seen.insert(value).second) unique.push_back(value);
    }
    return unique;
  }

  void Describe() {
    for (size_t b = 0; b < traffic_.size(); ++b) {
      Box& box = boxes_[b];
      box.title = boxes::TitleOf(box, likeness_[b], region_, options_.groups);
      box.lines.push_back(boxes::DetailOf(box));
      std::string count = Counted(std::ssize(box.nodes), "node");
      if (traffic_[b].saved > 0) count += fmt::format(", {} saved for backward", traffic_[b].saved);
      if (traffic_[b].reads_saved > 0)
        count += fmt::format(", reads {}", Counted(traffic_[b].reads_saved, "saved value"));
      box.lines.push_back(std::move(count));
      if (traffic_[b].produced.size() == 1)
        box.lines.push_back(TypeText(traffic_[b].produced[0]->type(), shapes_));
      AddPlacements(traffic_[b].produced, box);
      for (const Node* node : box.nodes) box.hover.push_back(boxes::NodeText(*node, shapes_));
    }
    for (Box& box : boxes_) {
      box.title = boxes::Fitted(std::move(box.title));
      for (std::string& line : box.lines) line = boxes::Fitted(std::move(line));
    }
  }

  void CheckCount(size_t boxes) const {
    if (boxes <= options_.most_boxes) return;
    Fail(ErrorCode::kOptionOutOfRange,
         "a picture of the modules '{}' would have at least {} boxes, and {} can be read; narrow "
         "the pattern to one "
         "module such as {}, draw one phase at a time, or gather more nodes into a box "
         "(--group role or module)",
         options_.module_fqn, boxes, options_.most_boxes, region_.place(0).root.str());
  }

  const Graph& graph_;
  const ShapeEnv& shapes_;
  const PictureOptions& options_;
  Region region_;
  std::vector<Box> boxes_;          // groups first
  std::vector<Likeness> likeness_;  // by group
  std::vector<Traffic> traffic_;    // by group
  std::vector<size_t> box_of_;      // by node
  std::map<std::pair<size_t, size_t>, Edge> edges_;
};

}  // namespace

GraphBoxes GatherBoxes(const Graph& graph, const PictureOptions& options) {
  return Boxes(graph, options).Take();
}

}  // namespace gt
