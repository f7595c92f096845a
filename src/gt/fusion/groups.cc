#include "gt/fusion/groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "gt/base/fqn_pattern.h"
#include "gt/fusion/element_code.h"
#include "gt/fusion/kernel_source.h"
#include "gt/ir/builder.h"
#include "gt/sim/storages.h"

namespace gt::fusion {
namespace {

constexpr size_t kMostMembers = 48;
constexpr size_t kMostTensors = 20;
// A node that only reads what a group reads joins it from nearby; one that uses its results from farther.
constexpr int32_t kFarthestSibling = 64;
constexpr int32_t kFarthestUser = 512;

bool IsCodedView(const Node* node) {
  return node != nullptr && node->op().is_view() && CodeKindOf(*node) == CodeKind::kView;
}

// A sign that the next kernel applies: such a view cannot be handed to a kernel of ours as memory.
bool IsLazy(const Node& view) {
  return view.op().view == ViewKind::kReinterpret &&
         view.result()->type() == view.operand(0)->type();
}

template <typename Visit>
void VisitUsers(const Value& value, const Visit& visit) {
  for (const Use& use : value.uses()) {
    Node* user = use.node();
    if (user != nullptr && IsCodedView(user)) {
      for (int32_t i = 0; i < user->result_count(); ++i) VisitUsers(*user->result(i), visit);
    } else {
      visit(user);
    }
  }
}

class Finder {
 public:
  Finder(Graph& graph, const FuseOptions& options)
      : graph_(graph), options_(options), storages_(graph), hints_(graph.shapes().Hints()) {
    group_of_.assign(static_cast<size_t>(graph.node_count()), -1);
    MeasureLimit();
  }

  std::vector<Group> Find() {
    for (Node* node : graph_.nodes()) {
      if (IsBarrier(*node)) {
        ++epoch_;
      } else if (IsFusible(*node)) {
        Place(*node);
      }
    }
    std::vector<Group> groups;
    for (Open& open : groups_) {
      if (open.members.size() > 1 || IsWorthItself(open.members)) {
        groups.push_back({std::move(open.members), {}});
      }
    }
    std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
      return a.members.back()->number() < b.members.back()->number();
    });
    return groups;
  }

 private:
  struct Open {
    std::vector<Node*> members;
    int64_t epoch = 0;
    std::string_view region;
    std::vector<std::pair<int32_t, int64_t>> memory;  // changes of bytes in use from a node on
  };

  // libtorch's concatenations and lookups reach a part of the bandwidth that one of ours does.
  static bool IsWorthItself(const std::vector<Node*>& members) {
    if (members.empty() || members.front()->result()->type().device.kind != DeviceKind::kCuda) {
      return false;
    }
    const CodeKind kind = CodeKindOf(*members.front());
    return kind == CodeKind::kCat || kind == CodeKind::kIndexSelect;
  }

  static size_t At(int64_t number) { return static_cast<size_t>(number); }
  int32_t& GroupOf(const Node& node) { return group_of_[At(node.number())]; }
  int64_t BytesOf(const TensorType& type) const { return type.bytes().Evaluate(hints_); }
  int64_t Elements(const Node& node) const {
    return node.result()->type().numel().Evaluate(hints_);
  }

  bool IsFusible(const Node& node) {
    if (node.op().is_view() || node.result_count() != 1 || node.op().random) return false;
    if (!options_.any_device && !IsOnGpu(node)) return false;
    if (!options_.fusion_module_fqn.empty() && RegionOf(node).empty()) return false;
    return CodeKindOf(node) != CodeKind::kNone && OperandsAreMemory(node);
  }

  // A sign that is still to be applied is part of the code, or the operator is left alone.
  static bool OperandsAreMemory(const Node& node) {
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      for (const Node* view = node.operand(i)->producer(); view != nullptr && view->op().is_view();
           view = view->operand(0)->producer()) {
        if (IsLazy(*view) && !IsCodedView(view)) return false;
      }
    }
    return true;
  }

  static bool IsOnGpu(const Node& node) {
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      if (node.operand(i)->type().device.kind != DeviceKind::kCuda) return false;
    }
    return node.result()->type().device.kind == DeviceKind::kCuda;
  }

  std::string_view RegionOf(const Node& node) const {
    for (const std::string& pattern : options_.fusion_module_fqn) {
      if (auto prefix = MatchingPrefix(pattern, node.meta().module.str())) return *prefix;
    }
    return {};
  }

  // Groups.

  void Place(Node& node) {
    std::vector<int32_t> producers, siblings;
    const auto add = [](std::vector<int32_t>& to, int32_t group) {
      if (group >= 0 && std::find(to.begin(), to.end(), group) == to.end()) to.push_back(group);
    };
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Value* base = BaseOf(node.operand(i));
      if (!base->is_input()) add(producers, GroupOf(*base->producer()));
      VisitUsers(*base, [&](const Node* user) {
        if (user != nullptr && user->number() < node.number() &&
            node.number() - user->number() <= kFarthestSibling) {
          add(siblings, GroupOf(*user));
        }
      });
    }
    if (producers.size() > 1 && Join(node, producers)) return;
    for (const auto* candidates : {&producers, &siblings}) {
      for (int32_t group : *candidates) {
        if (Join(node, {group})) return;
      }
    }
    GroupOf(node) = static_cast<int32_t>(groups_.size());
    groups_.push_back({{&node}, epoch_, RegionOf(node), {}});
  }

  bool Join(Node& node, const std::vector<int32_t>& groups) {
    std::vector<Node*> members;
    for (int32_t group : groups) {
      const Open& open = groups_[At(group)];
      if (open.epoch != epoch_ || open.region != RegionOf(node)) return false;
      members.insert(members.end(), open.members.begin(), open.members.end());
    }
    std::sort(members.begin(), members.end(),
              [](const Node* a, const Node* b) { return a->number() < b->number(); });
    members.push_back(&node);
    if (members.size() > kMostMembers) return false;
    if (node.number() - members.front()->number() > kFarthestUser) return false;
    if (!BelongTogether(members) || !RunsInTime(members, groups) || !IsOneLoop(members)) {
      return false;
    }
    std::vector<std::pair<int32_t, int64_t>> memory = MemoryChanges(members);
    if (!FitsMemory(members, groups, memory)) return false;

    Open& to = groups_[At(groups.front())];
    for (int32_t group : groups) {
      Apply(groups_[At(group)].memory, -1);
      groups_[At(group)].members.clear();
    }
    Apply(memory, 1);
    to.members = std::move(members);
    to.memory = std::move(memory);
    for (const Node* member : to.members) GroupOf(*member) = groups.front();
    return true;
  }

  static bool BelongTogether(const std::vector<Node*>& members) {
    const Meta& first = members.front()->meta();
    const int32_t chunk = first.chunk == nullptr ? -1 : first.chunk->id;
    return std::all_of(members.begin(), members.end(), [&](const Node* member) {
      const Meta& meta = member->meta();
      return meta.phase == first.phase && chunk == (meta.chunk == nullptr ? -1 : meta.chunk->id);
    });
  }

  bool IsMember(const Node* node, const std::vector<Node*>& members,
                const std::vector<int32_t>& groups) {
    return node == members.back() ||
           std::find(groups.begin(), groups.end(), GroupOf(*node)) != groups.end();
  }

  // All members run where the last one is: nobody else may need their results before.
  bool RunsInTime(const std::vector<Node*>& members, const std::vector<int32_t>& groups) {
    const int32_t place = members.back()->number();
    bool in_time = true;
    for (const Node* member : members) {
      if (member == members.back()) continue;
      VisitUsers(*member->result(), [&](const Node* user) {
        if (user == nullptr || IsMember(user, members, groups)) return;
        in_time &= user->number() > place;
      });
      if (!in_time) return false;
    }
    return true;
  }

  static bool HasOtherUsers(const Node& member, const std::unordered_set<const Node*>& members) {
    bool others = false, used = false;
    VisitUsers(*member.result(), [&](const Node* user) {
      used = true;
      others |= user == nullptr || !members.contains(user);
    });
    return others || !used;
  }

  bool IsOneLoop(const std::vector<Node*>& members) {
    const std::unordered_set<const Node*> set(members.begin(), members.end());
    const TensorType& type = members.back()->result()->type();
    const int64_t elements = Elements(*members.back());
    std::set<const Value*> tensors;
    for (const Node* member : members) {
      if (member == members.back() || HasOtherUsers(*member, set)) {
        if (!SameLoop(type, member->result()->type())) return false;
        tensors.insert(member->result());
      } else if (Elements(*member) < elements && !IsCheap(*member)) {
        return false;  // would be computed once for each element that it is broadcast to
      }
      for (int32_t i = 0; i < member->operand_count(); ++i) {
        const Value* base = BaseOf(member->operand(i));
        if (base->is_input() || !set.contains(base->producer())) tensors.insert(member->operand(i));
      }
    }
    return tensors.size() <= kMostTensors;
  }

  // Memory. A group's operands live until its last member, its results begin there, and what it hands
  // on inside needs none.

  void MeasureLimit() {
    in_use_.reserve(group_of_.size() + 1);
    int64_t alive = 0;
    std::vector<int64_t> ends(group_of_.size() + 1, 0);
    for (int32_t i = 0; i < storages_.node_count(); ++i) {
      for (const Storage& storage : storages_.AllocatedBy(i)) {
        if (!storage.IsIn(storages_.device())) continue;
        alive += storage.bytes;
        ends[At(std::min(storage.last, storages_.node_count()))] += storage.bytes;
      }
      in_use_.push_back(alive);
      limit_ = std::max(limit_, alive);
      alive -= ends[At(i)];
    }
  }

  std::vector<std::pair<int32_t, int64_t>> MemoryChanges(const std::vector<Node*>& members) const {
    const std::unordered_set<const Node*> set(members.begin(), members.end());
    const int32_t place = members.back()->number();
    std::vector<std::pair<int32_t, int64_t>> changes;
    std::set<int32_t> seen;
    for (const Node* member : members) {
      for (int32_t i = 0; i < member->operand_count(); ++i) {
        const Value* base = BaseOf(member->operand(i));
        if (!base->is_input() && set.contains(base->producer())) continue;
        const int32_t number = storages_.StorageOf(*base);
        const Storage& storage = storages_.storages()[At(number)];
        if (storage.last >= place || !seen.insert(number).second) continue;
        changes.emplace_back(storage.last + 1, storage.bytes);
        changes.emplace_back(place + 1, -storage.bytes);
      }
      const Storage& storage = storages_.storages()[At(storages_.StorageOf(*member->result()))];
      const bool needed = member == members.back() || HasOtherUsers(*member, set);
      const int32_t end = needed ? place : storage.last + 1;
      if (end <= member->number()) continue;
      changes.emplace_back(member->number(), -storage.bytes);
      changes.emplace_back(end, storage.bytes);
    }
    std::sort(changes.begin(), changes.end());
    return changes;
  }

  void Apply(const std::vector<std::pair<int32_t, int64_t>>& changes, int64_t sign) {
    for (size_t i = 0; i < changes.size(); ++i) {
      const int32_t end = i + 1 < changes.size() ? changes[i + 1].first : changes[i].first;
      int64_t bytes = 0;
      for (size_t j = 0; j <= i; ++j) bytes += changes[j].second;
      for (int32_t n = changes[i].first; n < end && n < Count(); ++n)
        in_use_[At(n)] += sign * bytes;
    }
  }
  int32_t Count() const { return static_cast<int32_t>(in_use_.size()); }

  bool FitsMemory(const std::vector<Node*>& /*members*/, const std::vector<int32_t>& groups,
                  const std::vector<std::pair<int32_t, int64_t>>& changes) {
    for (int32_t group : groups) Apply(groups_[At(group)].memory, -1);
    int64_t bytes = 0;
    bool fits = true;
    for (size_t i = 0; i + 1 < changes.size(); ++i) {
      bytes += changes[i].second;
      if (bytes <= 0) continue;
      for (int32_t n = changes[i].first; n < changes[i + 1].first && n < Count(); ++n) {
        fits &= in_use_[At(n)] + bytes <= limit_;
      }
    }
    for (int32_t group : groups) Apply(groups_[At(group)].memory, 1);
    return fits;
  }

  Graph& graph_;
  const FuseOptions& options_;
  const StorageTable storages_;
  const SymbolValues hints_;
  int64_t epoch_ = 0;
  std::vector<int32_t> group_of_;  // by number of the node
  std::vector<Open> groups_;
  std::vector<int64_t> in_use_;  // bytes while a node runs, by number
  int64_t limit_ = 0;
};

// Results that a group computes itself instead of reading them: what it reads all operands of anyway, and
// what nobody else uses, if its operands are not larger than it is. A value that only such groups used is
// then never written.
class Recomputation {
 public:
  Recomputation(Graph& graph, std::vector<Group>& groups, const FuseOptions& options)
      : groups_(groups), options_(options), storages_(graph), hints_(graph.shapes().Hints()) {}

  void Run() {
    for (Group& group : groups_) {
      while (AddOne(group)) {
      }
    }
  }

 private:
  using Nodes = std::set<const Node*>;

  bool AddOne(Group& group) const {
    Nodes inside(group.members.begin(), group.members.end());
    inside.insert(group.recomputed.begin(), group.recomputed.end());
    std::vector<Value*> read;
    for (const auto* nodes : {&group.members, &group.recomputed}) {
      for (const Node* node : *nodes) {
        for (int32_t i = 0; i < node->operand_count(); ++i) {
          Value* base = BaseOf(node->operand(i));
          if (base->is_input() || !inside.contains(base->producer())) read.push_back(base);
        }
      }
    }
    for (Value* value : read) {
      if (value->is_input() || !MayRecompute(*value->producer(), group)) continue;
      const Node& node = *value->producer();
      if (!ReadsItsOperands(node, read) && !IsItsOnlyUser(node, inside, group, read)) continue;
      group.recomputed.push_back(value->producer());
      std::sort(group.recomputed.begin(), group.recomputed.end(),
                [](const Node* a, const Node* b) { return a->number() < b->number(); });
      return true;
    }
    return false;
  }

  bool MayRecompute(const Node& node, const Group& group) const {
    if (node.op().is_view() || node.result_count() != 1 || node.op().random) return false;
    if (node.result()->type().device != group.members.back()->result()->type().device) return false;
    if (CodeKindOf(node) != CodeKind::kElement) return false;
    if (group.members.size() + group.recomputed.size() >= kMostMembers) return false;
    return options_.fusion_module_fqn.empty() ||
           node.meta().module == group.members.back()->meta().module;
  }

  static bool ReadsItsOperands(const Node& node, const std::vector<Value*>& read) {
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Value* base = BaseOf(node.operand(i));
      if (std::find(read.begin(), read.end(), base) == read.end()) return false;
      if (node.operand(i)->type().numel() != node.result()->type().numel()) return false;
    }
    return true;
  }

  // Then its result vanishes. What it reads must be in memory at that time in any case.
  bool IsItsOnlyUser(const Node& node, const Nodes& inside, const Group& group,
                     const std::vector<Value*>& read) const {
    if (!IsCheap(node) || node.meta().phase != group.members.back()->meta().phase) return false;
    bool only = true;
    VisitUsers(*node.result(),
               [&](const Node* user) { only &= user != nullptr && inside.contains(user); });
    if (!only || Elements(*node.result()) < Elements(*group.members.back()->result())) return false;
    int64_t bytes = 0;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Value* base = BaseOf(node.operand(i));
      if (std::find(read.begin(), read.end(), base) != read.end()) continue;
      const auto storage = static_cast<size_t>(storages_.StorageOf(*base));
      if (storages_.storages()[storage].last < group.members.back()->number()) return false;
      bytes += base->type().bytes().Evaluate(hints_);
    }
    return bytes <= node.result()->type().bytes().Evaluate(hints_);
  }

  int64_t Elements(const Value& value) const { return value.type().numel().Evaluate(hints_); }

  std::vector<Group>& groups_;
  const FuseOptions& options_;
  const StorageTable storages_;
  const SymbolValues hints_;
};

class BodyMaker {
 public:
  BodyMaker(const Group& group, const GroupUses& uses) : group_(group), uses_(uses) {
    inside_.insert(group.members.begin(), group.members.end());
    inside_.insert(group.recomputed.begin(), group.recomputed.end());
  }

  GroupBody Make() {
    Graph& outer = group_.members.front()->graph();
    body_.graph = std::make_shared<Graph>("fused");
    body_.graph->ShareShapes(outer);
    for (Node* node : group_.members) {
      if (!uses_.IsNeeded(*node->result())) continue;
      body_.outputs.push_back(node->result());
      body_.graph->AddOutput(OutputRole::kResult, node->result()->name(), ImageOf(node->result()));
    }
    return std::move(body_);
  }

 private:
  // Whether a view of memory outside is part of the body: what it shows is not just memory.
  static bool LooksThroughLazy(const Value* value) {
    for (const Node* node = value->producer(); IsCodedView(node);
         node = node->operand(0)->producer()) {
      if (IsLazy(*node)) return true;
    }
    return false;
  }

  Value* ImageOf(Value* value) {
    const auto found = images_.find(value);
    if (found != images_.end()) return found->second;
    const Value* base = BaseOf(value);
    const bool inside = !base->is_input() && inside_.contains(base->producer());
    if (inside || (base != value && LooksThroughLazy(value))) {
      Copy(*value->producer());
      return images_.at(value);
    }
    body_.inputs.push_back(value);
    return images_[value] = body_.graph->AddInput(InputRole::kInput, value->name(), value->type(),
                                                  value->name());
  }

  void Copy(const Node& node) {
    Graph::NodeSpec spec = SpecOf(node);
    for (Value*& operand : spec.operands) operand = ImageOf(operand);
    Graph::Typed typed = TypedOf(node);
    for (int32_t i = 0; i < node.result_count(); ++i) {
      typed.result_names.push_back(node.result(i)->name());
    }
    const Node* image = body_.graph->InsertTyped(std::move(spec), std::move(typed));
    for (int32_t i = 0; i < node.result_count(); ++i) images_[node.result(i)] = image->result(i);
  }

  const Group& group_;
  const GroupUses& uses_;
  std::unordered_set<const Node*> inside_;
  std::unordered_map<const Value*, Value*> images_;
  GroupBody body_;
};

}  // namespace

bool IsBarrier(const Node& node) {
  const Operator& op = node.op();
  return op.collective != Collective::kNone || op.transfer != Transfer::kNone || op.reads_data ||
         op.side_effect || op.work == Work::kHost;
}

Value* BaseOf(Value* value) {
  while (IsCodedView(value->producer())) value = value->producer()->operand(0);
  return value;
}

GroupUses::GroupUses(int32_t nodes, const std::vector<Group>& groups)
    : group_of_(static_cast<size_t>(nodes), -1), groups_(groups) {
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const Node* member : groups[i].members) {
      group_of_[static_cast<size_t>(member->number())] = static_cast<int32_t>(i);
    }
    for (const Node* node : groups[i].recomputed) recomputed_by_.emplace(node, i);
  }
}

bool GroupUses::Computes(size_t group, const Node& node) const {
  const auto& recomputed = groups_[group].recomputed;
  return GroupOf(node) == static_cast<int32_t>(group) ||
         std::find(recomputed.begin(), recomputed.end(), &node) != recomputed.end();
}

bool GroupUses::IsNeeded(const Value& result) const {
  const Node* producer = result.producer();
  const int32_t own = GroupOf(*producer);
  bool needed = false, used = false;
  VisitUsers(result, [&](const Node* user) {
    used = true;
    // A fused node that was made since has no number of its own.
    if (user == nullptr || user->op().work == Work::kFused) {
      needed = true;
      return;
    }
    // Whoever computes the user anew reads this, unless it computes this too.
    const auto [first, last] = recomputed_by_.equal_range(user);
    for (auto other = first; other != last; ++other) {
      needed |= !Computes(other->second, *producer);
    }
    const int32_t group = GroupOf(*user);
    if (group >= 0) {
      needed |= group != own && !Computes(static_cast<size_t>(group), *producer);
    } else {
      // A node that only others compute is not there any more.
      needed |= first == last || IsNeeded(*user->result());
    }
  });
  return needed || !used;
}

GroupBody MakeBody(const Group& group, const GroupUses& uses) {
  return BodyMaker(group, uses).Make();
}

std::vector<Group> FindGroups(Graph& graph, const FuseOptions& options) {
  graph.NumberNodes();
  std::vector<Group> groups = Finder(graph, options).Find();
  // Those without code stay as they are, before anything is decided that relies on them.
  const GroupUses uses(static_cast<int32_t>(graph.node_count()), groups);
  std::vector<Group> coded;
  for (Group& group : groups) {
    if (MakeKernelSource(*MakeBody(group, uses).graph)) coded.push_back(std::move(group));
  }
  Recomputation(graph, coded, options).Run();
  const GroupUses final_uses(static_cast<int32_t>(graph.node_count()), coded);
  for (Group& group : coded) {
    if (group.recomputed.empty()) continue;
    const GroupBody body = MakeBody(group, final_uses);
    if (!body.outputs.empty() && !MakeKernelSource(*body.graph)) group.recomputed.clear();
  }
  return coded;
}

}  // namespace gt::fusion
