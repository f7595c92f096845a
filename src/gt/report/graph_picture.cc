// In three steps: which nodes are shown and share a box (Region, Grouping, Boxes), where the boxes
// stand (Layout), and how that is written down (Drawing).
#include "gt/report/graph_picture.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/report/xml_text.h"

namespace gt {
namespace {

// What a box is, which decides its colour.
enum class BoxKind : uint8_t {
  kCompute,
  kTokens,  // tokens are sorted for and from their experts
  kHostSync,
  kAllToAll,
  kAllGather,
  kReduceScatter,
  kOtherCollective,
  kTransfer,
  kSplit,
  kJoin,
  kBufferUpdate,
  kParameters,
  kOutside,
};

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

struct Box {
  BoxKind kind = BoxKind::kCompute;
  int32_t chunk = -1;  // -1: of all chunks
  bool backward = false;
  std::vector<const Node*> nodes;  // none: stands for values from or for the rest of the step
  std::string title;
  std::vector<std::string> lines;  // below the title
  std::vector<std::string> hover;  // listed when pointed at
};

struct Edge {
  size_t from = 0, to = 0;
  std::vector<const Value*> values;  // none: only sizes, read by the host
};

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

std::string ValueText(const Value& value, const ShapeEnv& shapes) {
  return fmt::format("%{} {}", value.name(), TypeText(value.type(), shapes));
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

  const std::vector<Box>& boxes() const { return boxes_; }
  std::vector<Edge> edges() const {
    std::vector<Edge> edges;
    for (const auto& [ends, edge] : edges_)
      edges.push_back({edge.from, edge.to, Unique(edge.values)});
    return edges;
  }
  const ShapeEnv& shapes() const { return shapes_; }

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

// Where everything stands. Coordinates grow to the right and down.

constexpr double kTitleSize = 12.5, kLineSize = 11, kLineHeight = 15;
constexpr double kPadding = 10, kBoxGap = 26, kEdgeGap = 12, kLaneGap = 40;

// An upper estimate: which font a viewer has is not known.
double TextWidth(std::string_view text, double size, bool bold = false) {
  auto characters = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  return static_cast<double>(characters) * size * (bold ? 0.64 : 0.58);
}

double WidthOf(const Box& box) {
  double width = TextWidth(box.title, kTitleSize, true);
  for (const std::string& line : box.lines) width = std::max(width, TextWidth(line, kLineSize));
  return width + 2 * kPadding;
}
double HeightOf(const Box& box) {
  return kLineHeight * static_cast<double>(1 + box.lines.size()) + kPadding;
}

// Boxes in rows, in each row by lane: lane 0 is what belongs to all chunks and has the whole width,
// then one lane for each chunk, and last one for edges that pass by all chunks. A row has either
// boxes of chunks or boxes of lane 0. An edge over several rows has a place of its own in each
// row that it crosses, so that no edge runs behind a box.
class Layout {
 public:
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

  Layout(const std::vector<Box>& boxes, const std::vector<Edge>& edges)
      : boxes_(boxes), edges_(edges) {
    FindLanes();
    AssignRows();
    MakeItems();
    for (size_t lane = 1; lane < lanes_.size(); ++lane) Arrange(lane);
    PlaceLanes();
    Arrange(0);
    MoveTo(0);
  }

  const std::vector<Item>& items() const { return items_; }
  const std::vector<Row>& rows() const { return rows_; }
  std::vector<Row>& rows() { return rows_; }
  const std::vector<Lane>& lanes() const { return lanes_; }
  // Items that an edge goes through, from its first box to its last.
  const std::vector<size_t>& path(size_t edge) const { return paths_[edge]; }
  double width() const { return width_; }
  // Brings the left edge of everything to `left`.
  void MoveTo(double left) {
    double first = std::numeric_limits<double>::max(), last = -first;
    for (const Item& item : items_) {
      first = std::min(first, item.x - item.width / 2);
      last = std::max(last, item.x + item.width / 2);
    }
    for (const Lane& lane : lanes_) {
      if (lane.chunk < 0) continue;
      first = std::min(first, lane.left);
      last = std::max(last, lane.right);
    }
    for (Item& item : items_) item.x += left - first;
    for (Lane& lane : lanes_) lane.left += left - first, lane.right += left - first;
    width_ = last - first;
  }

 private:
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

  // A box stands in the first row below everything it needs, the backward below all of the forward.
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

  // Lanes are arranged one by one, each for itself; lane 0 comes last and sees them all. A long
  // edge holds on to itself more than to its ends, and so becomes straight.
  struct Pull {
    double sum = 0, weight = 0;
    void Add(const Layout& layout, const Item& item, const std::vector<size_t>& neighbours) {
      for (size_t n : neighbours) {
        const Item& other = layout.items_[n];
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
  std::vector<size_t> order_;             // boxes, each behind those it needs
  double middle_ = 0, width_ = 0;
};

class Drawing {
 public:
  Drawing(const std::vector<Box>& boxes, const std::vector<Edge>& edges, const ShapeEnv& shapes)
      : boxes_(boxes), edges_(edges), shapes_(shapes), layout_(boxes, edges) {}

  std::string Draw(const std::string& title) {
    constexpr double kNarrowest = 640;
    double content = layout_.width();
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
  using Row = Layout::Row;
  using Item = Layout::Item;

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
    for (Row& row : layout_.rows()) {
      if (row.chunked && !chunked) y += kLaneHeader;
      if (!row.chunked && chunked) y += kPadding;
      chunked = row.chunked;
      row.top = y;
      for (const std::vector<size_t>& cell : row.cells) {
        for (size_t i : cell) {
          if (layout_.items()[i].box != Layout::kNoBox)
            row.height = std::max(row.height, HeightOf(boxes_[layout_.items()[i].box]));
        }
      }
      y += row.height + kRowGap;
    }
    height_ = y - kRowGap + kMargin + (chunked ? kPadding : 0);
  }

  void DrawLanes() {
    const std::vector<Row>& rows = layout_.rows();
    for (size_t first = 0; first < rows.size(); ++first) {
      if (!rows[first].chunked || (first > 0 && rows[first - 1].chunked)) continue;
      size_t last = first;
      while (last + 1 < rows.size() && rows[last + 1].chunked) ++last;
      double top = rows[first].top - kLaneHeader;
      double bottom = rows[last].top + rows[last].height + kPadding;
      for (const Layout::Lane& lane : layout_.lanes()) {
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
    double x = layout_.items()[b].x, width = layout_.items()[b].width, top = TopOf(b);
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
    const Row& row = layout_.rows()[layout_.items()[b].row];
    return row.top + (row.height - HeightOf(boxes_[b])) / 2;
  }

  // Straight down through its place in each row, bent only between rows: it cannot touch a box.
  void DrawEdge(size_t e) {
    const Edge& edge = edges_[e];
    const std::vector<size_t>& path = layout_.path(e);
    const std::vector<Row>& rows = layout_.rows();
    double x = Port(edge.from, path[1], /*below=*/true);
    std::string d =
        fmt::format("M{:.1f} {:.1f}", x, TopOf(edge.from) + HeightOf(boxes_[edge.from]));
    for (size_t k = 0; k + 1 < path.size(); ++k) {
      const Row& row = rows[layout_.items()[path[k]].row];
      bool arrives = k + 2 == path.size();
      double next =
          arrives ? Port(edge.to, path[k], /*below=*/false) : layout_.items()[path[k + 1]].x;
      double from = row.top + row.height, to = rows[layout_.items()[path[k + 1]].row].top;
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
    const Item& item = layout_.items()[box];
    std::vector<size_t> ends = below ? item.down : item.up;
    std::stable_sort(ends.begin(), ends.end(), [this](size_t a, size_t b) {
      return layout_.items()[a].x < layout_.items()[b].x;
    });
    auto place = static_cast<double>(std::find(ends.begin(), ends.end(), other) - ends.begin());
    auto count = static_cast<double>(ends.size());
    double spacing = std::min(18.0, (item.width - 2 * kPadding) / count);
    return item.x + (place - (count - 1) / 2) * spacing;
  }

  const std::vector<Box>& boxes_;
  const std::vector<Edge>& edges_;
  const ShapeEnv& shapes_;
  Layout layout_;
  double width_ = 0, height_ = 0, first_row_ = 0;
  std::string svg_;
};

}  // namespace

std::string GraphPicture(const Graph& graph, const PictureOptions& options) {
  Boxes boxes(graph, options);
  std::vector<Edge> edges = boxes.edges();
  std::string title = options.title;
  if (title.empty()) {
    title = fmt::format("{} of graph {}", options.modules, graph.name());
    if (options.phase != PicturePhase::kAll) title += fmt::format(", {}", EnumName(options.phase));
  }
  return Drawing(boxes.boxes(), edges, boxes.shapes()).Draw(title);
}

}  // namespace gt
