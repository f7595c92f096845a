#include "gt/fusion/late_results.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "gt/fusion/element_code.h"
#include "gt/ir/builder.h"
#include "gt/sim/storages.h"

namespace gt::fusion {
namespace {

constexpr size_t kLongestChain = 8;
constexpr int64_t kSmallest = int64_t{1} << 20;  // bytes: less is not worth a write
constexpr int32_t kFarthest = 64;                // nodes that a user is moved across
// It takes time, if little: only where it frees a tenth of what is in use at the peak.
constexpr int64_t kLeastShare = 10;

bool IsBackward(const Node& node) { return node.meta().phase == Phase::kBackward; }

// Whoever uses the value, and the views between.
struct LateUse {
  Node* user;
  int32_t operand;
  std::vector<Node*> views;  // from the value on
};

// A result that a group can write.
struct LateResult {
  const Group* group;
  Value* value;
  std::vector<Node*> chain;  // what makes it, in order
  std::vector<LateUse> uses;
};

class LateResults {
 public:
  LateResults(Graph& graph, const std::vector<Group>& groups)
      : graph_(graph), groups_(groups), storages_(graph), hints_(graph.shapes().Hints()) {
    for (const Group& group : groups) {
      for (const Node* member : group.members) grouped_.insert(member);
    }
  }

  int64_t Run() {
    std::vector<LateResult> results;
    std::set<const Value*> found;
    for (const Group& group : groups_) {
      if (!IsBackward(*group.members.back())) continue;
      for (Value* value : Candidates(group)) {
        LateResult result{&group, value, {}, {}};
        if (!found.contains(value) && IsPossible(result)) {
          found.insert(value);
          results.push_back(std::move(result));
        }
      }
    }
    if (!AreWorthIt(results)) return 0;
    for (const LateResult& result : results) Rewrite(result);
    return std::ssize(results);
  }

 private:
  int32_t PlaceOf(const Group& group) const { return group.members.back()->number(); }

  // Tensors outside that the group reads: those of its members, and those that they recompute from.
  static std::set<const Value*> ReadBy(const Group& group) {
    std::set<const Node*> inside(group.members.begin(), group.members.end());
    inside.insert(group.recomputed.begin(), group.recomputed.end());
    std::set<const Value*> read;
    for (const Node* node : inside) {
      for (int32_t i = 0; i < node->operand_count(); ++i) {
        const Value* base = BaseOf(node->operand(i));
        if (base->is_input() || !inside.contains(base->producer())) read.insert(base);
      }
    }
    return read;
  }

  // Results of the forward that are made from what the group reads.
  std::vector<Value*> Candidates(const Group& group) const {
    std::vector<Value*> found;
    std::set<const Node*> seen;
    for (const Value* read : ReadBy(group)) AddMadeFrom(*read, 0, seen, found);
    std::sort(found.begin(), found.end(), [](const Value* a, const Value* b) {
      return a->producer()->number() < b->producer()->number();
    });
    return found;
  }

  void AddMadeFrom(const Value& value, size_t depth, std::set<const Node*>& seen,
                   std::vector<Value*>& found) const {
    if (depth > kLongestChain) return;
    for (const Use& use : value.uses()) {
      Node* user = use.node();
      if (user == nullptr || IsBackward(*user)) continue;
      if (user->op().is_view()) {
        if (CodeKindOf(*user) != CodeKind::kView) continue;
        for (int32_t i = 0; i < user->result_count(); ++i) {
          AddMadeFrom(*user->result(i), depth + 1, seen, found);
        }
        continue;
      }
      if (!grouped_.contains(user) || CodeKindOf(*user) != CodeKind::kElement) continue;
      if (!seen.insert(user).second) continue;
      found.push_back(user->result());
      AddMadeFrom(*user->result(), depth + 1, seen, found);
    }
  }

  bool IsPossible(LateResult& late) const {
    const TensorType& type = late.value->type();
    if (type.bytes().Evaluate(hints_) < kSmallest) return false;
    // As many elements as the group has, so that its loop makes them.
    if (type.numel() != late.group->members.back()->result()->type().numel()) return false;
    if (!FindUses(*late.value, {}, late.uses) || late.uses.empty()) return false;
    for (const LateUse& use : late.uses) {
      if (!MayFollow(*late.group, *use.user, *late.value)) return false;
    }
    return FindChain(*late.value->producer(), ReadBy(*late.group), late.chain);
  }

  bool AreWorthIt(const std::vector<LateResult>& results) const {
    // What is in use while each node runs, and the node at which that is most.
    std::vector<int64_t> change(static_cast<size_t>(storages_.node_count()) + 1, 0);
    for (const Storage& storage : storages_.storages()) {
      if (!storage.IsIn(storages_.device())) continue;
      change[static_cast<size_t>(std::max<int32_t>(storage.first, 0))] += storage.bytes;
      const auto end = static_cast<size_t>(storage.last) + 1;
      if (end < change.size()) change[end] -= storage.bytes;
    }
    int64_t in_use = 0, most = 0, peak = 0;
    for (size_t i = 0; i < change.size(); ++i) {
      in_use += change[i];
      if (in_use <= most) continue;
      most = in_use;
      peak = static_cast<int64_t>(i);
    }
    int64_t freed = 0;
    for (const LateResult& late : results) {
      const Storage& storage =
          storages_.storages()[static_cast<size_t>(storages_.StorageOf(*late.value))];
      const bool alive = storage.first <= peak && peak <= storage.last;
      if (alive && late.group->members.front()->number() > peak) freed += storage.bytes;
    }
    return freed * kLeastShare >= most && freed > 0;
  }

  // Uses in the backward; false if one of them is nothing that could be directed elsewhere.
  bool FindUses(const Value& value, const std::vector<Node*>& views,
                std::vector<LateUse>& uses) const {
    for (const Use& use : value.uses()) {
      Node* user = use.node();
      if (user == nullptr) return false;  // an output
      if (user->op().is_view()) {
        std::vector<Node*> more = views;
        more.push_back(user);
        if (user->result_count() != 1 || !FindUses(*user->result(), more, uses)) return false;
      } else if (IsBackward(*user)) {
        // A kernel that reads it would rather recompute it itself.
        if (grouped_.contains(user)) return false;
        uses.push_back({user, use.index(), views});
      }
    }
    return true;
  }

  // A product whose result nobody waits for, and whose other operands are there until then anyway.
  bool MayFollow(const Group& group, const Node& user, const Value& value) const {
    const int32_t place = PlaceOf(group);
    if (user.number() > place) return true;
    const Operator& op = user.op();
    if (op.work != Work::kProduct && op.work != Work::kGroupedProduct) return false;
    if (op.side_effect || op.random || place - user.number() > kFarthest) return false;
    if (!NothingWaitsBetween(user, *group.members.back())) return false;
    for (int32_t i = 0; i < user.result_count(); ++i) {
      if (!IsUsedAfter(*user.result(i), place)) return false;
    }
    for (int32_t i = 0; i < user.operand_count(); ++i) {
      if (storages_.StorageOf(*user.operand(i)) == storages_.StorageOf(value)) continue;
      const auto storage = static_cast<size_t>(storages_.StorageOf(*user.operand(i)));
      if (storages_.storages()[storage].last < place) return false;
    }
    return true;
  }

  static bool IsUsedAfter(const Value& value, int32_t place) {
    for (const Use& use : value.uses()) {
      const Node* user = use.node();
      if (user == nullptr) continue;
      if (user->op().is_view()) {
        for (int32_t i = 0; i < user->result_count(); ++i) {
          if (!IsUsedAfter(*user->result(i), place)) return false;
        }
        // A view before the place would have to move along.
        if (user->number() <= place) return false;
      } else if (user->number() <= place) {
        return false;
      }
    }
    return true;
  }

  static bool NothingWaitsBetween(const Node& from, const Node& to) {
    for (const Node* node = &from; node != nullptr && node != &to; node = node->next()) {
      if (IsBarrier(*node)) return false;
    }
    return true;
  }

  // What has to be computed again, in order, from what is read.
  bool FindChain(Node& node, const std::set<const Value*>& read, std::vector<Node*>& chain) const {
    if (std::find(chain.begin(), chain.end(), &node) != chain.end()) return true;
    if (chain.size() >= kLongestChain || node.op().random || node.result_count() != 1) return false;
    if (CodeKindOf(node) != CodeKind::kElement) return false;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      Value* base = BaseOf(node.operand(i));
      if (read.contains(base)) continue;
      if (base->is_input() || !FindChain(*base->producer(), read, chain)) return false;
    }
    chain.push_back(&node);
    return true;
  }

  void Rewrite(const LateResult& late) {
    Node *first = late.group->members.front(), *last = late.group->members.back();
    std::unordered_map<const Value*, Value*> copies;
    for (Node* node : late.chain) {
      Node* copy = Copy(*node, *last, first, copies);
      copies[node->result()] = copy->result();
    }
    // The group reads the copies too, so that it computes each once.
    for (Node* member : late.group->members) {
      for (int32_t i = 0; i < member->operand_count(); ++i) {
        const auto found = copies.find(member->operand(i));
        if (found != copies.end()) member->SetOperand(i, found->second);
      }
    }
    Node* after = last->next();
    for (const LateUse& use : late.uses) {
      if (use.user->number() <= last->number()) graph_.MoveBefore(use.user, after);
      Value* shown = copies.at(late.value);
      for (const Node* view : use.views) {
        Graph::NodeSpec spec = SpecOf(*view);
        spec.operands[0] = shown;
        spec.meta = use.user->meta();
        shown = graph_.InsertTyped(std::move(spec), TypedOf(*view), use.user)->result();
      }
      use.user->SetOperand(use.operand, shown);
    }
  }

  Node* Copy(const Node& node, const Node& last, Node* before,
             const std::unordered_map<const Value*, Value*>& copies) {
    Graph::NodeSpec spec = SpecOf(node);
    for (Value*& operand : spec.operands) operand = ImageOf(operand, last, before, copies);
    SetMeta(spec.meta, last);
    return graph_.InsertTyped(std::move(spec), TypedOf(node), before);
  }

  // Of something that is shown through views of a copy.
  Value* ImageOf(Value* value, const Node& last, Node* before,
                 const std::unordered_map<const Value*, Value*>& copies) {
    const auto found = copies.find(value);
    if (found != copies.end()) return found->second;
    if (!copies.contains(BaseOf(value))) return value;
    const Node& view = *value->producer();
    Graph::NodeSpec spec = SpecOf(view);
    spec.operands[0] = ImageOf(spec.operands[0], last, before, copies);
    SetMeta(spec.meta, last);
    return graph_.InsertTyped(std::move(spec), TypedOf(view), before)->result(value->index());
  }

  static void SetMeta(Meta& meta, const Node& last) {
    meta.phase = last.meta().phase;
    meta.chunk = last.meta().chunk;
    meta.recompute = Recompute::kNone;
  }

  Graph& graph_;
  const std::vector<Group>& groups_;
  const StorageTable storages_;
  const SymbolValues hints_;
  std::set<const Node*> grouped_;
};

}  // namespace

int64_t WriteResultsLate(Graph& graph, const std::vector<Group>& groups) {
  return LateResults(graph, groups).Run();
}

}  // namespace gt::fusion
