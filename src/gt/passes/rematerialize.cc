#include "gt/passes/rematerialize.h"

#include <algorithm>
#include <limits>

#include "gt/base/error.h"
#include "gt/passes/aliasing.h"
#include "gt/passes/backward_copy.h"

namespace gt {
namespace {

bool IsBackward(const Node& node) { return node.meta().phase == Phase::kBackward; }

// Only tags of the forward are orders. Copies keep theirs, which then tells where they came from.
bool IsRecomputed(const Node& node) {
  const Recompute tag = node.meta().recompute;
  return node.meta().phase == Phase::kForward &&
         (tag == Recompute::kPreferRecompute || tag == Recompute::kMustRecompute);
}

bool IsRecomputed(const Value& value) {
  return !value.is_input() && IsRecomputed(*value.producer());
}

void CheckRepeatable(const Node& node) {
  std::string_view harm;
  if (node.op().random) harm = "it would draw other numbers";
  if (!node.bound_symbols().empty()) harm = "it would bind its data symbols a second time";
  if (node.op().side_effect) harm = "it would have its effect twice";
  if (harm.empty()) return;
  Fail(ErrorCode::kBadMetadata,
       "node {} ({}, module '{}') is tagged {}, but computed again {}; tag it must_save, as "
       "memory_policy does",
       node.result_count() > 0 ? "%" + node.result()->name() : "without results",
       node.op().name.str(), node.meta().module.str(), Spelling(node.meta().recompute), harm);
}

// How long the memory of values is held by what this pass will not change. Where the original is
// alive anyway (a later chunk of the loss reads it, the step returns it), a copy would cost time
// and save nothing.
class Lifetimes {
 public:
  explicit Lifetimes(Graph& graph) {
    CountResults(graph);
    for (const auto& output : graph.outputs()) Extend(*output->value(), kForever);
    for (const Node* node = graph.last(); node != nullptr; node = node->previous()) AddUses(*node);
  }

  bool IsAliveAt(const Value& value, const Node& node) const {
    return until_[Slot(value)] >= node.number();
  }

 private:
  static constexpr int32_t kForever = std::numeric_limits<int32_t>::max();
  static constexpr int32_t kNever = -1;

  void CountResults(Graph& graph) {
    size_t results = 0;
    first_result_.reserve(static_cast<size_t>(graph.NumberNodes()));
    for (const Node* node : graph.nodes()) {
      first_result_.push_back(results);
      results += static_cast<size_t>(node->result_count());
    }
    until_.resize(results, kNever);
  }

  size_t Slot(const Value& value) const {
    return first_result_[static_cast<size_t>(value.producer()->number())] +
           static_cast<size_t>(value.index());
  }

  void Extend(const Value& value, int32_t number) {
    if (value.is_input()) return;
    int32_t& until = until_[Slot(value)];
    until = std::max(until, number);
  }

  // Nodes are shown from the last to the first, so that the lifetimes of a node's results are known
  // when its operands are looked at.
  void AddUses(const Node& node) {
    int32_t results_live = kNever;
    for (int32_t i = 0; i < node.result_count(); ++i) {
      results_live = std::max(results_live, until_[Slot(*node.result(i))]);
    }
    // What serves the backward alone goes when it is copied.
    if (IsRecomputed(node) && results_live == kNever) return;
    const Value* viewed = node.result_count() > 0 ? ViewedValue(*node.result()) : nullptr;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Value& operand = *node.operand(i);
      // These are the uses that go to copies.
      if (IsBackward(node) && IsRecomputed(operand)) continue;
      Extend(operand, &operand == viewed ? std::max(node.number(), results_live) : node.number());
    }
  }

  std::vector<size_t> first_result_;  // by number of the node: where its results begin in until_
  std::vector<int32_t> until_;        // number of the last node that needs the memory
};

// Copies nodes into one backward region after the other.
class Copier {
 public:
  explicit Copier(Graph& graph)
      : graph_(graph), lifetimes_(graph), copies_(static_cast<size_t>(graph.node_count())) {}

  void BeginRegion() { ++region_; }

  // What the backward node should use in place of this operand: the value itself where it is saved
  // or alive, else its copy of this region, made now if there is none yet.
  Value* Substitute(Value* value, Node* user) {
    if (NeedsCopy(*value, *user)) CopyWithAncestors(value->producer(), user);
    return Current(value);
  }

  // Each node that was copied, once.
  const std::vector<Node*>& copied() const { return copied_; }
  bool WasCopied(const Node& node) const { return At(node).node != nullptr; }
  int64_t copy_count() const { return copy_count_; }

 private:
  struct Copy {
    Node* node = nullptr;
    int32_t region = 0;  // the last one it was copied into
  };
  const Copy& At(const Node& node) const { return copies_[static_cast<size_t>(node.number())]; }
  Copy& At(const Node& node) { return copies_[static_cast<size_t>(node.number())]; }

  bool NeedsCopy(const Value& value, const Node& user) const {
    return IsRecomputed(value) && At(*value.producer()).region != region_ &&
           !lifetimes_.IsAliveAt(value, user);
  }

  Value* Current(Value* value) const {
    if (!IsRecomputed(*value)) return value;
    const Copy& copy = At(*value->producer());
    return copy.region == region_ ? copy.node->result(value->index()) : value;
  }

  // Ancestors first. Without recursion: chains may be as long as the graph.
  void CopyWithAncestors(Node* wanted, Node* user) {
    struct Pending {
      Node* node;
      int32_t operand;  // those before are there
    };
    std::vector<Pending> pending = {{wanted, 0}};
    while (!pending.empty()) {
      auto& [node, operand] = pending.back();
      while (operand < node->operand_count() && !NeedsCopy(*node->operand(operand), *user)) {
        ++operand;
      }
      if (operand < node->operand_count()) {
        pending.push_back({node->operand(operand)->producer(), 0});
      } else {
        Insert(*node, user);
        pending.pop_back();
      }
    }
  }

  void Insert(Node& original, Node* before) {
    std::vector<Value*> operands;
    for (int32_t i = 0; i < original.operand_count(); ++i) {
      operands.push_back(Current(original.operand(i)));
    }
    std::vector<std::string> names;
    for (int32_t i = 0; i < original.result_count(); ++i) {
      names.push_back(CopyName(original.result(i)->name()));
    }
    if (!WasCopied(original)) copied_.push_back(&original);
    Node* copy =
        InsertBackwardCopy(graph_, original, std::move(operands), before, std::move(names));
    At(original) = {copy, region_};
    ++copy_count_;
  }

  std::string CopyName(const std::string& name) const {
    std::string copy = name + "_recomputed";
    // Copies of later regions count up; starting at the region, the first try is mostly free.
    for (int32_t n = region_; graph_.FindValue(copy) != nullptr; ++n) {
      copy = fmt::format("{}_recomputed_{}", name, n);
    }
    return copy;
  }

  Graph& graph_;
  Lifetimes lifetimes_;
  std::vector<Copy> copies_;  // by number of the original
  std::vector<Node*> copied_;
  int32_t region_ = 0;
  int64_t copy_count_ = 0;
};

// Erases the copied nodes that nothing uses any more; each may have been the last user of others.
int64_t EraseUnused(Graph& graph, const Copier& copier) {
  std::vector<Node*> unused;
  for (Node* node : copier.copied()) {
    if (!node->has_uses()) unused.push_back(node);
  }
  int64_t erased = 0;
  for (; !unused.empty(); ++erased) {
    Node* node = unused.back();
    unused.pop_back();
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      Node* producer = node->operand(i)->producer();
      // Let go of one by one, a producer is found without uses exactly once.
      node->SetOperand(i, nullptr);
      if (producer != nullptr && copier.WasCopied(*producer) && !producer->has_uses()) {
        unused.push_back(producer);
      }
    }
    graph.Erase(node);
  }
  return erased;
}

}  // namespace

const PassInfo& Rematerialize::info() const {
  static constexpr PassInfo kInfo = {
      .name = "rematerialize",
      .summary = "Computes forward values again in the backward instead of keeping them.",
      .description =
          "A backward node that uses a forward value tagged prefer_recompute or must_recompute "
          "gets "
          "a copy of it, named X_recomputed, made in front of the node from copies of whatever it "
          "needs that is tagged too. The users of one backward region, a run of backward nodes "
          "without others between them, share a copy. Where the original is alive anyway, because "
          "a later node of forward or loss reads it or the step returns it, it is used as it is. "
          "An original that nothing uses any more goes. Runs before reshard_after_forward, so that "
          "copies use the parameters that are gathered for the backward.",
      .reads = "recompute tags and phases, operator facts.",
      .writes = "copies of forward nodes in phase backward, collectives and their waits included.",
      .never =
          "repeats random operators, reads of data or effects: such a node with a tag is an error.",
  };
  return kInfo;
}

bool Rematerialize::Run(Graph& graph) {
  for (const Node* node : graph.nodes()) {
    if (IsRecomputed(*node)) CheckRepeatable(*node);
  }
  Copier copier(graph);
  bool in_backward = false;
  int64_t region_start = 0;  // copies made before the region
  for (Node* node : graph.nodes()) {
    if (!in_backward && IsBackward(*node)) {
      copier.BeginRegion();
      region_start = copier.copy_count();
    }
    in_backward = IsBackward(*node);
    if (!in_backward) continue;
    bool first = copier.copy_count() == region_start;
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      Value* operand = node->operand(i);
      Value* substitute = copier.Substitute(operand, node);
      if (substitute != operand) node->SetOperand(i, substitute);
    }
    if (first && copier.copy_count() > region_start) ++regions_;
  }
  copies_ += copier.copy_count();
  erased_ += EraseUnused(graph, copier);
  return copier.copy_count() > 0;
}

}  // namespace gt
