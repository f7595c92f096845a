#include "gt/passes/memory/rematerialize.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "gt/analysis/aliasing.h"
#include "gt/analysis/result_map.h"
#include "gt/analysis/roles.h"
#include "gt/base/error.h"
#include "gt/passes/framework/recomputed_name.h"
#include "gt/passes/memory/backward_copy.h"
#include "gt/passes/memory/memory_policy.h"

namespace gt {
namespace {

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
  const std::string_view harm = HarmOfRepeating(node);
  if (harm.empty()) return;
  Fail(ErrorCode::kBadMetadata,
       "node {} ({}, module '{}') is tagged {}, but computed again {}; tag it must_save, as "
       "memory_policy does",
       node.result_count() > 0 ? "%" + node.result()->name() : "without results",
       node.op().name.str(), node.meta().module.str(), Spelling(node.meta().recompute), harm);
}

// How long the memory of values is held by what this pass will not change. Where the original is
// alive anyway (a later chunk of the loss reads it, the step returns it, it shows an input), a copy
// would cost time and save nothing.
//
// A question about values, not about storages (sim/storages.h): a view of memory that is alive is still
// copied, which costs nothing, and a reshape counts as a view of its argument, whether or not it copies
// at the sizes at hand.
class Lifetimes {
 public:
  explicit Lifetimes(const Graph& graph) : until_(graph, kNever) {
    for (const Node* node : graph.nodes()) {
      if (!ShowsInput(*node)) continue;
      for (int32_t i = 0; i < node->result_count(); ++i) until_[*node->result(i)] = kForever;
    }
    for (const auto& output : graph.outputs()) Extend(*output->value(), kForever);
    for (const Node* node = graph.last(); node != nullptr; node = node->previous()) AddUses(*node);
  }

  bool IsAliveAt(const Value& value, const Node& node) const {
    return until_[value] >= node.number();
  }

 private:
  static constexpr int32_t kForever = std::numeric_limits<int32_t>::max();
  static constexpr int32_t kNever = -1;

  // Whether the results are views of an input, whose memory is the caller's and stays.
  bool ShowsInput(const Node& node) const {
    if (node.result_count() == 0 || node.op().aliasing != Aliasing::kAlways) return false;
    const Value& viewed = *ViewedValue(*node.result());
    return viewed.is_input() || until_[viewed] == kForever;
  }

  void Extend(const Value& value, int32_t number) {
    if (!value.is_input()) until_[value] = std::max(until_[value], number);
  }

  // Nodes are shown from the last to the first, so that the lifetimes of a node's results are known
  // when its operands are looked at.
  void AddUses(const Node& node) {
    int32_t results_live = kNever;
    for (int32_t i = 0; i < node.result_count(); ++i) {
      results_live = std::max(results_live, until_[*node.result(i)]);
    }
    // What serves the backward alone is removed when it is copied. Draws are never removed.
    if (IsRecomputed(node) && results_live == kNever && !node.op().random) return;
    const Value* viewed = node.result_count() > 0 ? ViewedValue(*node.result()) : nullptr;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Value& operand = *node.operand(i);
      // These uses will read copies.
      if (node.meta().is_backward() && IsRecomputed(operand)) continue;
      Extend(operand, &operand == viewed ? std::max(node.number(), results_live) : node.number());
    }
  }

  ResultMap<int32_t> until_;  // number of the last node that needs the memory
};

// Makes the copy of a random node draw the numbers of the original: from the state that the
// generator had there. Around the copy, later draws of the step are not disturbed.
class Redraws {
 public:
  explicit Redraws(Graph& graph) : graph_(graph) {}

  void Wrap(Node& original, Node* copy) {
    const Device device = DeviceOf(original);
    Meta meta = copy->meta();
    meta.recompute = Recompute::kNone;
    Value* disturbed = SetState(StateBefore(original, device), device, meta, copy);
    SetState(disturbed, device, std::move(meta), copy->next());
    ++count_;
  }

  int64_t count() const { return count_; }

 private:
  // A node draws for the device that it writes to.
  static Device DeviceOf(const Node& node) {
    int32_t i = 0;
    while (i + 1 < node.result_count() && !node.result(i)->type().defined()) ++i;
    return node.result(i)->type().device;
  }

  // Read once, before the original, however often that is copied.
  Value* StateBefore(Node& original, Device device) {
    static const Operator* const kRead = FindOperator("gt::generator_state");
    Value*& state = states_[&original];
    if (state != nullptr) return state;
    Meta meta = original.meta();
    meta.recompute = Recompute::kMustSave;
    state = graph_.Insert({kRead, {}, {device}, std::move(meta), ""}, &original)->result();
    return state;
  }

  // Returns the state as it was.
  Value* SetState(Value* state, Device device, Meta meta, Node* before) {
    static const Operator* const kSet = FindOperator("gt::set_generator_state");
    return graph_.Insert({kSet, {state}, {OperandRef{0}, device}, std::move(meta), ""}, before)
        ->result();
  }

  Graph& graph_;
  std::unordered_map<const Node*, Value*> states_;  // by original
  int64_t count_ = 0;
};

// A part of the backward short enough that a copy may live through it: a layer, or nodes outside of
// layers that follow one another.
struct Place {
  int32_t region = 0;
  int32_t layer = -1;
  int32_t stretch = 0;  // outside of layers: which of the runs of such nodes
  bool operator==(const Place&) const = default;
};

// Tells places apart, shown the backward nodes in order.
class Places {
 public:
  explicit Places(const Graph& graph) : roles_(graph) {}
  void BeginRegion() { ++here_.region; }
  void Enter(const Node& node) {
    const int32_t layer = roles_.BlockOf(node);
    if (layer != here_.layer) ++stretches_;
    // Nodes of other modules in the middle of a layer do not divide it.
    here_ = {here_.region, layer, layer < 0 ? stretches_ : 0};
  }
  const Place& here() const { return here_; }

 private:
  Roles roles_;
  Place here_;
  int32_t stretches_ = 0;
};

// Whether recomputing the results takes about as long as reading and writing them.
bool IsCheap(const Operator& op) { return op.recompute == RecomputeClass::kCheap && !op.random; }

// Which tagged nodes every place recomputes for itself: the cheap ones that need nothing expensive.
// One made of something expensive would keep that alive instead of itself.
class CheapChains {
 public:
  explicit CheapChains(const Graph& graph) {
    cheap_.reserve(static_cast<size_t>(graph.node_count()));
    for (const Node* node : graph.nodes()) cheap_.push_back(IsCheapWithAncestors(*node));
  }

  bool Contains(const Node& node) const { return cheap_[static_cast<size_t>(node.number())]; }

 private:
  bool IsCheapWithAncestors(const Node& node) const {
    if (!IsRecomputed(node) || !IsCheap(node.op())) return false;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Value& operand = *node.operand(i);
      if (IsRecomputed(operand) && !Contains(*operand.producer())) return false;
    }
    return true;
  }

  std::vector<bool> cheap_;  // by number
};

// Copies nodes into one place of the backward after the other.
class Copier {
 public:
  explicit Copier(Graph& graph)
      : graph_(graph),
        lifetimes_(graph),
        cheap_(graph),
        redraws_(graph),
        places_(graph),
        copies_(static_cast<size_t>(graph.node_count())) {}

  void BeginRegion() { places_.BeginRegion(); }
  void Enter(const Node& user) { places_.Enter(user); }

  // What the backward node just entered should use in place of this operand: the value itself where
  // it is saved or alive, else its copy, made now if there is none to be shared.
  Value* Substitute(Value* value, Node* user) {
    if (NeedsCopy(*value, *user)) CopyWithAncestors(value->producer(), user);
    return Current(value);
  }

  // Each node that was copied, once.
  const std::vector<Node*>& copied() const { return copied_; }
  bool WasCopied(const Node& node) const { return At(node).last != nullptr; }
  int64_t copy_count() const { return copy_count_; }
  int64_t redrawn_count() const { return redraws_.count(); }

 private:
  struct Copies {
    Node* last = nullptr;
    Place place = {};  // of the last one
    int32_t count = 0;
  };
  const Copies& At(const Node& node) const { return copies_[static_cast<size_t>(node.number())]; }
  Copies& At(const Node& node) { return copies_[static_cast<size_t>(node.number())]; }

  // Whether the last copy serves users in this place too.
  bool IsSharedHere(const Node& original) const {
    const Place& place = At(original).place;
    if (place == places_.here()) return true;
    return place.region == places_.here().region && !cheap_.Contains(original);
  }

  bool NeedsCopy(const Value& value, const Node& user) const {
    return IsRecomputed(value) && !IsSharedHere(*value.producer()) &&
           !lifetimes_.IsAliveAt(value, user);
  }

  Value* Current(Value* value) const {
    if (!IsRecomputed(*value) || !IsSharedHere(*value->producer())) return value;
    return At(*value->producer()).last->result(value->index());
  }

  // Ancestors first. Without recursion: chains may be as long as the graph.
  void CopyWithAncestors(Node* wanted, Node* user) {
    struct Pending {
      Node* node;
      int32_t operand;  // those before exist
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
    Copies& copies = At(original);
    if (++copies.count == 1) copied_.push_back(&original);
    std::vector<std::string> names;
    for (int32_t i = 0; i < original.result_count(); ++i) {
      names.push_back(CopyName(original.result(i)->name(), copies.count));
    }
    copies.last =
        InsertBackwardCopy(graph_, original, std::move(operands), before, std::move(names));
    copies.place = places_.here();
    if (original.op().random) redraws_.Wrap(original, copies.last);
    ++copy_count_;
  }

  // The first copy is X_recomputed, the second X_recomputed_2, where these names are free.
  std::string CopyName(const std::string& name, int32_t count) const {
    std::string copy = name + kRecomputedSuffix;
    for (int32_t n = count; graph_.FindValue(copy) != nullptr; ++n) {
      copy = fmt::format("{}{}_{}", name, kRecomputedSuffix, n);
    }
    return copy;
  }

  Graph& graph_;
  Lifetimes lifetimes_;
  CheapChains cheap_;
  Redraws redraws_;
  Places places_;
  std::vector<Copies> copies_;  // by number of the original
  std::vector<Node*> copied_;
  int64_t copy_count_ = 0;
};

// Erases the copied nodes that nothing uses any more; each may have been the last user of others. A
// random node stays, since later draws follow from it, and dies as soon as it has drawn.
int64_t EraseUnused(Graph& graph, const Copier& copier) {
  auto may_go = [&copier](const Node& node) {
    return copier.WasCopied(node) && !node.has_uses() && !node.op().random;
  };
  std::vector<Node*> unused;
  for (Node* node : copier.copied()) {
    if (may_go(*node)) unused.push_back(node);
  }
  int64_t erased = 0;
  for (; !unused.empty(); ++erased) {
    Node* node = unused.back();
    unused.pop_back();
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      Node* producer = node->operand(i)->producer();
      // Uses are dropped one by one, so a producer is found without uses exactly once.
      node->SetOperand(i, nullptr);
      if (producer != nullptr && may_go(*producer)) unused.push_back(producer);
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
          "gets a copy of it, named X_recomputed, made in front of the node from copies of "
          "whatever "
          "it needs that is tagged too. Backward nodes of one layer share a copy, and so do nodes "
          "outside of layers that follow one another. Another layer makes its own, so that none "
          "lives from layer to layer, unless the value is dear (an operator that memory_policy "
          "keeps, a collective, a random value, or anything made of such copies): these are made "
          "once in each backward region, a run of backward nodes without others between them. "
          "Where the original is alive anyway, because a later node of forward or loss reads it, "
          "the step returns it or it shows an input, it is used as it is. A random operator draws "
          "the same numbers again: the generator's state is read in front of the original, set in "
          "front of the copy, and set back behind it. An original that nothing uses any more goes, "
          "but for random ones, on which later draws depend. Runs before reshard_after_forward, so "
          "that copies use the parameters that are gathered for the backward.",
      .reads = "recompute tags, phases, blocks, operator facts.",
      .writes =
          "copies of forward nodes in phase backward, collectives and their waits included; reads "
          "and settings of generator states.",
      .never =
          "repeats reads of data, effects, or what handles generator states: such a node with a "
          "tag is an error. Removes a draw, or changes what one draws.",
      .by_block = true,
  };
  return kInfo;
}

bool Rematerialize::RunImpl(Graph& graph, PassContext& /*context*/) {
  for (const Node* node : graph.nodes()) {
    if (IsRecomputed(*node)) CheckRepeatable(*node);
  }
  graph.NumberNodes();
  Copier copier(graph);
  bool in_backward = false;
  int64_t region_start = 0;  // copies made before the region
  for (Node* node : graph.nodes()) {
    if (!in_backward && node->meta().is_backward()) {
      copier.BeginRegion();
      region_start = copier.copy_count();
    }
    in_backward = node->meta().is_backward();
    if (!in_backward) continue;
    copier.Enter(*node);
    bool first = copier.copy_count() == region_start;
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      Value* operand = node->operand(i);
      Value* substitute = copier.Substitute(operand, node);
      if (substitute != operand) node->SetOperand(i, substitute);
    }
    if (first && copier.copy_count() > region_start) ++regions_;
  }
  copies_ += copier.copy_count();
  redrawn_ += copier.redrawn_count();
  erased_ += EraseUnused(graph, copier);
  return copier.copy_count() > 0;
}

}  // namespace gt
