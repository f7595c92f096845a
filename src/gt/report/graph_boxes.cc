// In three steps: which nodes are shown (Region), which of them share a box (Grouping), and what
// the boxes exchange and say (Boxes).
#include "gt/report/graph_boxes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/base/text.h"

namespace gt {
namespace {

// No more than fits into a box: a name can be of any length. Cut between characters.
std::string Fitted(std::string text, size_t longest = 48) {
  if (text.size() <= longest) return text;
  size_t end = longest - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text + "...";
}

std::string Counted(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// "grouped_mm" of "aten::_grouped_mm.out".
std::string_view ShortName(const Operator& op) {
  std::string_view name = op.name.str();
  if (size_t colons = name.rfind("::"); colons != name.npos) name.remove_prefix(colons + 2);
  name = name.substr(0, name.find('.'));
  name.remove_prefix(std::min(name.find_first_not_of('_'), name.size()));
  return name;
}

std::string TypeText(const TensorType& type, const ShapeEnv& shapes) {
  std::vector<std::string> sizes;
  for (const Dim& size : type.sizes) sizes.push_back(size.ToString(shapes.Namer()));
  return fmt::format("{}[{}]", DTypeName(type.dtype), Join(sizes, ", "));
}

std::string NodeText(const Node& node, const ShapeEnv& shapes) {
  std::string text;
  for (int32_t i = 0; i < node.result_count(); ++i) {
    text += (i > 0 ? ", " : "") + ValueText(*node.result(i), shapes);
  }
  return fmt::format("{}{}{}", text, text.empty() ? "" : " = ", node.op().name.str());
}

// The operators that say most about a box: those that do the arithmetic, then the frequent ones;
// views last.
std::string OperatorsText(const std::vector<const Node*>& nodes) {
  constexpr size_t kMost = 3;
  struct Count {
    const Operator* op;
    size_t count;
    int Rank() const { return op->is_view() ? 2 : op->flops == nullptr; }
  };
  std::vector<Count> counts;
  std::unordered_map<std::string_view, size_t> known;
  for (const Node* node : nodes) {
    auto [found, is_new] = known.try_emplace(ShortName(node->op()), counts.size());
    if (is_new) counts.push_back({&node->op(), 0});
    ++counts[found->second].count;
  }
  std::stable_sort(counts.begin(), counts.end(), [](const Count& a, const Count& b) {
    return std::pair(a.Rank(), b.count) < std::pair(b.Rank(), a.count);
  });
  std::vector<std::string> parts;
  for (const Count& count : counts) {
    if (parts.size() == kMost) {
      parts.emplace_back("...");
      break;
    }
    parts.push_back(count.count == 1 ? std::string(ShortName(*count.op))
                                     : fmt::format("{} x{}", ShortName(*count.op), count.count));
  }
  return Join(parts, ", ");
}

// The name of a module or parameter seen from `root`: router of layers.1.moe.router.
std::string_view Below(std::string_view root, std::string_view name) {
  if (root.empty()) return name;
  if (!name.starts_with(root)) return name;
  if (name.size() == root.size()) return {};
  return name[root.size()] == '.' ? name.substr(root.size() + 1) : name;
}

// Which nodes the picture shows, and what they need of each other.

struct Place {
  Name root;  // the module that the pattern fits
  Name part;  // the component of the module's name behind it; empty: the root itself
  bool inside = false;
};

class Region {
 public:
  struct Need {
    size_t node;
    const Value* value;  // null: a size that the node reads from a tensor
  };

  Region(const Graph& graph, const PictureOptions& options) : options_(options) {
    if (std::string problem = FqnPatternProblem(options.modules); !problem.empty()) {
      Fail(ErrorCode::kBadOptionValue, "the pattern of modules {}: {}", Quoted(options.modules),
           problem);
    }
    for (const Node* node : graph.nodes()) {
      if (const Place* place = PlaceOf(*node)) Add(*node, *place);
    }
    if (nodes_.empty()) FailEmpty(graph);
    for (size_t i = 0; i < nodes_.size(); ++i) FindNeeds(i);
    FindBufferUpdates(graph);
  }

  size_t size() const { return nodes_.size(); }
  const Node& node(size_t i) const { return *nodes_[i]; }
  const Place& place(size_t i) const { return *places_[i]; }
  const std::vector<Need>& needs(size_t i) const { return needs_[i]; }
  bool Contains(const Node& node) const { return position_.contains(&node); }
  std::optional<size_t> PositionOf(const Node* node) const {
    auto found = position_.find(node);
    return found == position_.end() ? std::nullopt : std::optional(found->second);
  }
  // The one module that the pattern fits; empty when there are several.
  const std::string& root() const { return several_roots_ ? Name().str() : root_.str(); }
  // The buffer that a node computes the new value of, or null.
  const std::string* BufferOf(const Node& node) const {
    auto found = buffers_.find(&node);
    return found == buffers_.end() ? nullptr : found->second;
  }

 private:
  const Place* PlaceOf(const Node& node) {
    bool backward = node.meta().phase == Phase::kBackward;
    if (backward ? options_.phase == PicturePhase::kForward
                 : options_.phase == PicturePhase::kBackward) {
      return nullptr;
    }
    if (const Place& place = PlaceOf(node.meta().module); place.inside) return &place;
    // What cuts and joins chunks may carry the module it was made for.
    if (node.meta().chunk == nullptr) return nullptr;
    const Place& place = PlaceOf(node.meta().chunk->region);
    return place.inside ? &place : nullptr;
  }

  const Place& PlaceOf(Name module) {
    auto [found, is_new] = places_by_module_.try_emplace(module);
    if (!is_new) return found->second;
    if (auto root = MatchingPrefix(options_.modules, module.str())) {
      std::string_view rest = Below(*root, module.str());
      found->second = {Name(*root), Name(rest.substr(0, rest.find('.'))), true};
    }
    return found->second;
  }

  void Add(const Node& node, const Place& place) {
    several_roots_ |= !nodes_.empty() && root_ != place.root;
    root_ = place.root;
    for (SymbolId symbol : node.bound_symbols()) binder_[symbol] = nodes_.size();
    position_[&node] = nodes_.size();
    nodes_.push_back(&node);
    places_.push_back(&place);
    needs_.emplace_back();
  }

  void FindNeeds(size_t i) {
    const Node& node = *nodes_[i];
    for (int32_t k = 0; k < node.operand_count(); ++k) {
      if (auto from = PositionOf(node.operand(k)->producer())) {
        needs_[i].push_back({*from, node.operand(k)});
      }
    }
    auto look = [&](const Dim& size) {
      size.ForEachSymbol([&](SymbolId symbol) {
        auto found = binder_.find(symbol);
        if (found != binder_.end() && found->second < i)
          needs_[i].push_back({found->second, nullptr});
      });
    };
    for (const Argument& arg : node.args()) {
      if (const auto* size = std::get_if<Dim>(&arg)) look(*size);
      if (const auto* sizes = std::get_if<Shape>(&arg)) {
        for (const Dim& size : *sizes) look(size);
      }
    }
  }

  // A buffer that chunks update one after the other is an output of the last one alone.
  void FindBufferUpdates(const Graph& graph) {
    for (const auto& output : graph.outputs()) {
      if (output->role != OutputRole::kBufferUpdate) continue;
      const Node* node = output->value()->producer();
      while (node != nullptr && Contains(*node) && buffers_.try_emplace(node, &output->name).second)
        node = SameInEarlierChunk(*node);
    }
  }

  static const Node* SameInEarlierChunk(const Node& node) {
    const ChunkMeta* chunk = node.meta().chunk.get();
    for (int32_t k = 0; k < node.operand_count() && chunk != nullptr; ++k) {
      const Node* before = node.operand(k)->producer();
      if (before == nullptr || &before->op() != &node.op()) continue;
      const ChunkMeta* other = before->meta().chunk.get();
      if (other != nullptr && other->region == chunk->region && other->id < chunk->id &&
          other->original == chunk->original) {
        return before;
      }
    }
    return nullptr;
  }

  [[noreturn]] void FailEmpty(const Graph& graph) const {
    std::vector<std::string> modules;
    std::unordered_map<Name, bool> seen;
    for (const Node* node : graph.nodes()) {
      Name module = node->meta().module;
      if (!module.empty() && seen.try_emplace(module).second) modules.push_back(module.str());
    }
    std::string hint = DidYouMean(options_.modules, modules);
    if (hint.empty() && !modules.empty()) {
      modules.resize(std::min<size_t>(modules.size(), 5));
      hint = fmt::format("; some of its modules are {}", Join(modules, ", "));
    }
    Fail(ErrorCode::kBadOptionValue, "no node of graph @{}{} belongs to a module that '{}' fits{}",
         graph.name(),
         options_.phase == PicturePhase::kAll
             ? ""
             : fmt::format(" in phase {}", EnumName(options_.phase)),
         options_.modules, hint);
  }

  const PictureOptions& options_;
  std::vector<const Node*> nodes_;  // in the order of the graph
  std::vector<const Place*> places_;
  std::vector<std::vector<Need>> needs_;
  std::unordered_map<const Node*, size_t> position_;
  std::unordered_map<SymbolId, size_t> binder_;
  std::unordered_map<Name, Place> places_by_module_;  // places do not move when it grows
  std::unordered_map<const Node*, const std::string*> buffers_;
  Name root_;
  bool several_roots_ = false;
};

bool AreOfOnePlace(const Meta& a, const Meta& b) {
  auto chunk = [](const Meta& meta) { return meta.chunk ? meta.chunk->id : -1; };
  return a.module == b.module && a.phase == b.phase && a.ep_role == b.ep_role &&
         a.exchange == b.exchange && chunk(a) == chunk(b);
}

// The collective that a node starts, waits for, or sees the result of from another side.
const Node* CollectiveOf(const Node& node) {
  const Collective kind = node.op().collective;
  if (kind != Collective::kNone && kind != Collective::kWait) return &node;
  if (kind == Collective::kNone && !node.op().is_view()) return nullptr;
  const Value* seen =
      kind == Collective::kWait ? node.operand(0) : node.TensorArg(node.op().view_arg());
  const Node* before = seen == nullptr ? nullptr : seen->producer();
  if (before == nullptr || before->op().collective == Collective::kNone) return nullptr;
  if (kind == Collective::kWait) return before;
  return AreOfOnePlace(node.meta(), before->meta()) ? CollectiveOf(*before) : nullptr;
}

BoxKind KindOfCollective(const Node& node) {
  switch (node.op().collective) {
    case Collective::kAllToAll:
      return BoxKind::kAllToAll;
    case Collective::kAllGather:
      return BoxKind::kAllGather;
    case Collective::kReduceScatter:
      return BoxKind::kReduceScatter;
    default:
      return BoxKind::kOtherCollective;
  }
}

BoxKind KindOf(const Region& region, const Node& node) {
  const Meta& meta = node.meta();
  ChunkRole role = meta.chunk ? meta.chunk->role : ChunkRole::kNone;
  if (role == ChunkRole::kSplitBoundary || role == ChunkRole::kChunkInput) return BoxKind::kSplit;
  if (role == ChunkRole::kMaterialization) return BoxKind::kJoin;
  if (region.BufferOf(node) != nullptr) return BoxKind::kBufferUpdate;
  if (const Node* collective = CollectiveOf(node)) return KindOfCollective(*collective);
  if (node.op().transfer != Transfer::kNone) return BoxKind::kTransfer;
  if (node.op().reads_data || meta.exchange == TokenExchange::kCountSync) return BoxKind::kHostSync;
  bool moves_tokens = meta.ep_role == EpRole::kDispatch || meta.ep_role == EpRole::kCombine;
  return moves_tokens ? BoxKind::kTokens : BoxKind::kCompute;
}

// What nodes must have in common to share a box.
struct Likeness {
  BoxKind kind;
  Phase phase;
  EpRole ep_role;
  TokenExchange exchange;
  ChunkRole chunk_role;
  ChunkProof proof;
  int32_t chunk;
  Name root, part;
  const Node* alone;  // the node itself when none may share, else null

  bool operator==(const Likeness&) const = default;
  struct Hash {
    size_t operator()(const Likeness& like) const {
      size_t hash = like.root.Hash() * 31 + like.part.Hash();
      for (size_t field : {static_cast<size_t>(like.kind), static_cast<size_t>(like.phase),
                           static_cast<size_t>(like.ep_role), static_cast<size_t>(like.exchange),
                           static_cast<size_t>(like.chunk_role), static_cast<size_t>(like.proof),
                           static_cast<size_t>(like.chunk), std::hash<const Node*>()(like.alone)}) {
        hash = hash * 1000003 + field;
      }
      return hash;
    }
  };
};

Likeness LikenessOf(const Region& region, size_t i, PictureGroups groups) {
  const Node& node = region.node(i);
  const Meta& meta = node.meta();
  const ChunkMeta chunk = meta.chunk ? *meta.chunk : ChunkMeta{};
  // A body differs from what is around it by its chunk already.
  ChunkRole role = chunk.role == ChunkRole::kBody ? ChunkRole::kNone : chunk.role;
  return {.kind = KindOf(region, node),
          .phase = meta.phase,
          .ep_role = meta.ep_role,
          .exchange = meta.exchange,
          .chunk_role = role,
          .proof = chunk.proof,
          .chunk = std::max(chunk.id, -1),
          .root = region.place(i).root,
          .part = groups == PictureGroups::kModule ? region.place(i).part : Name(),
          .alone = groups == PictureGroups::kNone ? &node : nullptr};
}

// Gathers the nodes of a region into groups so that no two groups need each other: a picture with
// a cycle could not be drawn from top to bottom.
//
// Each node gets a level: at least that of everything it needs, and one more where that is of
// another likeness. Nodes of one likeness and one level are a group. An edge that leaves a group
// therefore leads to a higher level: to another likeness by the rule, and to the same likeness
// because the level would otherwise be the same and so the group. Levels grow along every path, so
// no path comes back. Raising a whole group keeps the rule as long as what needs it stays above.
class Grouping {
 public:
  Grouping(const Region& region, PictureGroups groups)
      : region_(region), like_(region.size()), group_of_(region.size()) {
    std::unordered_map<Likeness, size_t, Likeness::Hash> known;
    for (size_t i = 0; i < region.size(); ++i) {
      Likeness like = LikenessOf(region, i, groups);
      auto [found, is_new] = known.try_emplace(like, likenesses_.size());
      if (is_new) likenesses_.push_back(like);
      like_[i] = found->second;
    }
    FormGroups();
    MergeUpwards();
    CheckLevels();
  }

  size_t GroupOf(size_t node) const { return Final(group_of_[node]); }
  const Likeness& LikenessOfNode(size_t node) const { return likenesses_[like_[node]]; }

 private:
  struct Group {
    size_t like;
    int32_t level;
    size_t merged_into;  // itself: into none
  };

  void FormGroups() {
    // The backward stands above all of the forward, so that neither keeps the other from merging.
    int32_t above_forward = 0;
    std::vector<int32_t> level = Levels(0);
    for (size_t i = 0; i < region_.size(); ++i) {
      if (!IsBackward(i)) above_forward = std::max(above_forward, level[i] + 1);
    }
    level = Levels(above_forward);
    std::map<std::pair<size_t, int32_t>, size_t> known;
    for (size_t i = 0; i < region_.size(); ++i) {
      auto [found, is_new] = known.try_emplace({like_[i], level[i]}, groups_.size());
      if (is_new) groups_.push_back({like_[i], level[i], groups_.size()});
      group_of_[i] = found->second;
    }
  }

  std::vector<int32_t> Levels(int32_t lowest_of_backward) const {
    std::vector<int32_t> level(region_.size(), 0);
    for (size_t i = 0; i < region_.size(); ++i) {
      if (IsBackward(i)) level[i] = lowest_of_backward;
      for (const Region::Need& need : region_.needs(i)) {
        level[i] = std::max(level[i], level[need.node] + (like_[need.node] != like_[i] ? 1 : 0));
      }
    }
    return level;
  }
  bool IsBackward(size_t node) const { return region_.node(node).meta().phase == Phase::kBackward; }

  // A group that waits for nothing (a range of numbers, the counts of this rank) has a low level.
  // It joins the last group of its likeness that everything that needs it stands above.
  void MergeUpwards() {
    std::vector<std::vector<size_t>> users(groups_.size());
    for (size_t i = 0; i < region_.size(); ++i) {
      for (const Region::Need& need : region_.needs(i)) {
        if (group_of_[need.node] != group_of_[i]) users[group_of_[need.node]].push_back(i);
      }
    }
    std::vector<size_t> order(groups_.size());
    for (size_t g = 0; g < order.size(); ++g) order[g] = g;
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return groups_[a].level > groups_[b].level; });
    std::vector<std::vector<size_t>> above(likenesses_.size());  // highest first
    for (size_t g : order) {
      std::vector<size_t>& candidates = above[groups_[g].like];
      const int32_t latest = LatestLevel(g, users[g]);
      auto highest = std::partition_point(candidates.begin(), candidates.end(),
                                          [&](size_t c) { return groups_[c].level > latest; });
      if (highest != candidates.end()) {
        groups_[g].merged_into = *highest;
      } else {
        candidates.push_back(g);
      }
    }
  }

  int32_t LatestLevel(size_t group, const std::vector<size_t>& users) const {
    int32_t latest = std::numeric_limits<int32_t>::max();
    for (size_t user : users) {
      latest = std::min(latest, LevelOf(user) - (like_[user] != groups_[group].like ? 1 : 0));
    }
    return latest;
  }

  void CheckLevels() const {
    for (size_t i = 0; i < region_.size(); ++i) {
      for (const Region::Need& need : region_.needs(i)) {
        GT_CHECK(GroupOf(i) == GroupOf(need.node) || LevelOf(i) > LevelOf(need.node),
                 "boxes of {} and {} need each other", region_.node(need.node).op().name.str(),
                 region_.node(i).op().name.str());
      }
    }
  }

  // Groups are merged into groups that are never merged themselves.
  size_t Final(size_t group) const { return groups_[group].merged_into; }
  int32_t LevelOf(size_t node) const { return groups_[GroupOf(node)].level; }

  const Region& region_;
  std::vector<Likeness> likenesses_;
  std::vector<size_t> like_;  // by node
  std::vector<size_t> group_of_;
  std::vector<Group> groups_;
};

// Everything that is drawn: the region's groups, what comes in, what goes out, and the edges.
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
      if (values.size() > 1) box.lines.push_back(Counted(values.size(), "value"));
    } else if (values.size() == 1) {
      const std::string& name = graph_.inputs()[static_cast<size_t>(first.index())]->name;
      box.title = fmt::format("{} {}", source.origin, Below(region_.root(), name));
    } else {
      box.title = Counted(values.size(), source.origin);
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

  void AddValueLines(const std::vector<const Value*>& values, Box& box) const {
    if (values.size() == 1) box.lines.push_back(TypeText(values[0]->type(), shapes_));
    for (const Value* value : values) box.hover.push_back(ValueText(*value, shapes_));
  }

  void AddLeaving() {
    for (size_t from = 0; from < traffic_.size(); ++from) {
      const Traffic& traffic = traffic_[from];
      if (!traffic.leaving.empty()) AddSink(from, ReadersText(traffic), traffic.leaving);
      if (traffic.gradients.empty()) continue;
      AddSink(from,
              traffic.gradients.size() == 1
                  ? fmt::format("gradient of {}", Below(region_.root(), *traffic.gradients[0]))
                  : Counted(traffic.gradients.size(), "gradient"),
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
      box.title = TitleOf(b);
      box.lines.push_back(DetailOf(box));
      std::string count = Counted(box.nodes.size(), "node");
      if (traffic_[b].saved > 0) count += fmt::format(", {} saved for backward", traffic_[b].saved);
      if (traffic_[b].reads_saved > 0)
        count += fmt::format(", reads {}", Counted(traffic_[b].reads_saved, "saved value"));
      box.lines.push_back(std::move(count));
      if (traffic_[b].produced.size() == 1)
        box.lines.push_back(TypeText(traffic_[b].produced[0]->type(), shapes_));
      for (const Node* node : box.nodes) box.hover.push_back(NodeText(*node, shapes_));
    }
    for (Box& box : boxes_) {
      box.title = Fitted(std::move(box.title));
      for (std::string& line : box.lines) line = Fitted(std::move(line));
    }
  }

  std::string TitleOf(size_t b) const {
    const Box& box = boxes_[b];
    std::string place = PlaceText(likeness_[b]);
    switch (box.kind) {
      case BoxKind::kAllToAll:
      case BoxKind::kAllGather:
      case BoxKind::kReduceScatter:
      case BoxKind::kOtherCollective:
        return fmt::format("{}: {}", CollectiveName(*box.nodes.front()), place);
      case BoxKind::kTransfer:
        return fmt::format("{}: {}", ShortName(box.nodes.front()->op()), place);
      case BoxKind::kSplit:
        return likeness_[b].chunk_role == ChunkRole::kChunkInput ? "chunk input" : "split";
      case BoxKind::kJoin:
        return likeness_[b].proof == ChunkProof::kNone ? "concatenate chunks" : "add chunks";
      case BoxKind::kBufferUpdate:
        return BufferTitle(box);
      default:
        return place;
    }
  }

  // "all_gather" of all_gather_into_tensor: the kind, not the variant.
  static std::string CollectiveName(const Node& node) {
    std::string_view name = ShortName(CollectiveOf(node)->op());
    for (std::string_view kind : {"all_to_all", "all_gather", "reduce_scatter", "all_reduce"}) {
      if (name.starts_with(kind)) return std::string(kind);
    }
    return std::string(name);
  }

  std::string BufferTitle(const Box& box) const {
    if (box.nodes.size() > 1) return fmt::format("update of {} buffers", box.nodes.size());
    return fmt::format("update {}", Below(region_.root(), *region_.BufferOf(*box.nodes.front())));
  }

  // "moe" of layers.1.moe; a number alone would say nothing, so all of layers.1.
  static std::string LastName(const std::string& module) {
    std::string last = module.substr(module.rfind('.') + 1);
    return last.find_first_not_of("0123456789") == last.npos ? module : last;
  }

  std::string PlaceText(const Likeness& like) const {
    const std::string& root = like.root.str();
    bool moves_tokens = like.ep_role == EpRole::kDispatch || like.ep_role == EpRole::kCombine;
    std::string text = like.part.str();
    if (text.empty() && !moves_tokens) text = LastName(root);
    if (options_.groups == PictureGroups::kRole && like.ep_role == EpRole::kCompute)
      text = Spelling(like.ep_role);
    if (moves_tokens) text += (text.empty() ? "" : ", ") + std::string(Spelling(like.ep_role));
    if (like.exchange == TokenExchange::kExchange) text += ", tokens";
    if (like.exchange == TokenExchange::kCountExchange) text += ", counts";
    if (like.exchange == TokenExchange::kCountSync) text += ", sizes to host";
    return region_.root().empty() ? fmt::format("{}: {}", root, text) : text;
  }

  static std::string DetailOf(const Box& box) {
    const Node* collective = CollectiveOf(*box.nodes.front());
    if (collective == nullptr || collective->op().group_arg < 0) return OperatorsText(box.nodes);
    const auto* group = std::get_if<std::string>(&collective->arg(collective->op().group_arg));
    auto starts = std::count_if(box.nodes.begin(), box.nodes.end(), [](const Node* node) {
      return node->op().collective != Collective::kNone &&
             node->op().collective != Collective::kWait;
    });
    return fmt::format("{}group {}", starts > 1 ? fmt::format("{} times, ", starts) : "",
                       group != nullptr ? *group : "?");
  }

  void CheckCount(size_t boxes) const {
    if (boxes <= options_.most_boxes) return;
    Fail(ErrorCode::kOptionOutOfRange,
         "a picture of the modules '{}' would have at least {} boxes, and {} can be read; narrow "
         "the pattern to one "
         "module such as {}, draw one phase at a time, or gather more nodes into a box "
         "(--group role or module)",
         options_.modules, boxes, options_.most_boxes, region_.place(0).root.str());
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

std::string ValueText(const Value& value, const ShapeEnv& shapes) {
  return fmt::format("%{} {}", value.name(), TypeText(value.type(), shapes));
}

}  // namespace gt
