#include "gt/passes/memory/memory_policy.h"

#include <algorithm>
#include <unordered_map>

#include "gt/analysis/parameter_nodes.h"
#include "gt/analysis/roles.h"
#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/base/logging.h"

namespace gt {
namespace {

bool IsRecomputed(Recompute tag) {
  return tag == Recompute::kPreferRecompute || tag == Recompute::kMustRecompute;
}

// One decision for each node of a graph. They do not depend on tags that exist already.
class Decisions {
 public:
  Decisions(Graph& graph, MemoryPolicy policy, std::vector<SaveSelector> selectors)
      : policy_(policy),
        selectors_(std::move(selectors)),
        selector_used_(selectors_.size(), false),
        returned_(graph),
        parameters_(graph),
        roles_(graph) {
    auto count = static_cast<size_t>(graph.NumberNodes());
    tags_.reserve(count);
    walked_.resize(count, false);
    for (const Node* node : graph.nodes()) tags_.push_back(Decide(*node));
    for (const Node* node : graph.nodes()) SaveWhatEntersLayer(*node);
  }

  Recompute Of(const Node& node) const { return tags_[static_cast<size_t>(node.number())]; }
  int64_t saved_between_layers() const { return saved_between_layers_; }
  bool SelectorWasUsed(size_t i) const { return selector_used_[i]; }

 private:
  Recompute& TagOf(const Node& node) { return tags_[static_cast<size_t>(node.number())]; }

  Recompute Decide(const Node& node) {
    if (policy_ == MemoryPolicy::kNone || node.meta().phase != Phase::kForward) {
      return Recompute::kNone;
    }
    // Other passes decide about these.
    if (parameters_.ServesCollective(node) || node.op().transfer != Transfer::kNone) {
      return Recompute::kNone;
    }
    const Node* exchange = ExchangeAfter(node);
    if (exchange != nullptr) return Of(*exchange);
    if (node.op().aliasing == Aliasing::kAlways) return Again();
    return KeptByPolicy(node) || IsAlwaysKept(node, returned_) ? Recompute::kMustSave : Again();
  }

  Recompute Again() const {
    return policy_ == MemoryPolicy::kFull ? Recompute::kMustRecompute : Recompute::kPreferRecompute;
  }

  // The collective that a wait completes. Its result may be read only after the wait, so the two
  // are kept or repeated together.
  static const Node* ExchangeAfter(const Node& node) {
    if (node.op().collective != Collective::kWait) return nullptr;
    const Node* producer = node.operand(0)->producer();
    return producer != nullptr && producer->op().collective != Collective::kNone ? producer
                                                                                 : nullptr;
  }

  bool KeptByPolicy(const Node& node) {
    if (policy_ == MemoryPolicy::kFull) return IsSelected(node);
    if (policy_ == MemoryPolicy::kEager && IsSecondProduct(node)) return false;
    return !WhyKept(node.op()).empty();
  }

  bool IsSelected(const Node& node) {
    bool selected = false;
    for (size_t i = 0; i < selectors_.size(); ++i) {
      if (!selectors_[i].Selects(node)) continue;
      selector_used_[i] = true;
      selected = true;
    }
    return selected;
  }

  bool IsSecondProduct(const Node& node) {
    return node.op().recompute == RecomputeClass::kPlainProduct &&
           ++products_[roles_.BlockOf(node)] % 2 == 0;
  }

  // Without this, one value of the last layer could make the backward recompute the whole forward.
  // Values outside of layers count as before all of them. What is made of parameters alone asks
  // for nothing else.
  void SaveWhatEntersLayer(const Node& node) {
    if (!IsRecomputed(Of(node))) return;
    const int32_t layer = roles_.BlockOf(node);
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      const Node* producer = node.operand(i)->producer();
      if (producer == nullptr || parameters_.Contains(*producer)) continue;
      if (roles_.BlockOf(*producer) < layer) Save(*node.operand(i));
    }
  }

  // Saves the memory that a value shows: a view is recomputed from what it looks into.
  void Save(const Value& shown) {
    const Value* value = &shown;
    while (value != nullptr && !value->is_input() && IsRecomputed(Of(*value->producer()))) {
      const Node& producer = *value->producer();
      const bool owns_memory = producer.op().aliasing != Aliasing::kAlways;
      if (owns_memory || ExchangeAfter(producer) != nullptr) {
        TagOf(producer) = Recompute::kMustSave;
        ++saved_between_layers_;
      }
      // Long chains with many users are walked once.
      auto number = static_cast<size_t>(producer.number());
      if (owns_memory || walked_[number]) return;
      walked_[number] = true;
      value = ViewedValue(*value);
    }
  }

  MemoryPolicy policy_;
  std::vector<SaveSelector> selectors_;
  std::vector<bool> selector_used_;
  EscapingStorage returned_;
  ParameterNodes parameters_;
  Roles roles_;
  std::unordered_map<int32_t, int64_t> products_;  // seen so far, by layer
  std::vector<Recompute> tags_;                    // by number, as the next
  std::vector<bool> walked_;
  int64_t saved_between_layers_ = 0;
};

// "aten.mm.default" is how Python spells aten::mm.
std::string OperatorName(std::string_view text) {
  size_t dot = text.find('.');
  if (text.find("::") != std::string_view::npos || dot == std::string_view::npos) {
    return std::string(text);
  }
  std::string name = std::string(text.substr(0, dot)) + "::" + std::string(text.substr(dot + 1));
  constexpr std::string_view kDefault = ".default";
  if (name.ends_with(kDefault)) name.resize(name.size() - kDefault.size());
  return name;
}

const Operator& SelectedOperator(std::string_view selector, std::string_view text) {
  std::string name = OperatorName(text);
  const Operator* op = FindOperator(name);
  if (op == nullptr) {
    std::vector<std::string> names;
    for (const Operator* each : AllOperators()) names.push_back(each->name.str());
    Fail(ErrorCode::kBadOptionValue, "save selector {}: there is no operator {}{}",
         Quoted(selector), Quoted(text), DidYouMean(name, names));
  }
  if (op->aliasing == Aliasing::kAlways) {
    Fail(ErrorCode::kBadOptionValue,
         "save selector {}: {} only shows memory of another value, so there is nothing of its own "
         "to keep; name the operator that computes the value",
         Quoted(selector), name);
  }
  return *op;
}

}  // namespace

std::string_view WhyKept(const Operator& op) {
  switch (op.recompute) {
    case RecomputeClass::kCheap:
    case RecomputeClass::kLarge:
      return {};
    case RecomputeClass::kPlainProduct:
    case RecomputeClass::kProduct:
      return "much arithmetic for each byte of the result: the longest to compute again";
    case RecomputeClass::kAttention:
      return "its time grows with the square of the sequence length";
    case RecomputeClass::kWholeTensor:
      return "reads a whole tensor to make one number";
    case RecomputeClass::kRouting:
      return "small, and everything about where a token goes follows from it";
    case RecomputeClass::kExchange:
      return "repeating it would send the data a second time";
  }
  return {};
}

std::string_view HarmOfRepeating(const Node& node) {
  const Operator& op = node.op();
  if (!node.bound_symbols().empty()) return "it would bind its data symbols a second time";
  if (op.reads_data) return "it would make the host wait for the device a second time";
  if (op.side_effect) return "it would have its effect twice";
  if (op.generator_state) return "it would find the generator in another state";
  return {};
}

bool IsAlwaysKept(const Node& node, const EscapingStorage& returned) {
  if (!HarmOfRepeating(node).empty()) return true;
  // Updates of buffers and whatever else the step returns.
  for (int32_t i = 0; i < node.result_count(); ++i) {
    if (returned.Contains(*node.result(i))) return true;
  }
  return false;
}

bool SaveSelector::Selects(const Node& node) const {
  return &node.op() == op && MatchesFqn(modules, node.meta().module.str());
}

SaveSelector ParseSaveSelector(std::string_view text) {
  // Module names have no colons; operators do.
  size_t colons = text.find("::");
  std::string_view modules = Trim(text.substr(0, colons));
  std::string_view op = colons == std::string_view::npos ? "" : Trim(text.substr(colons + 2));
  if (modules.empty() || op.empty()) {
    Fail(ErrorCode::kBadOptionValue,
         "save selector {}: expected FQN_PATTERN::OPERATOR, such as "
         "layers.*.attention.wq::aten::mm",
         Quoted(text));
  }
  return {std::string(modules), &SelectedOperator(text, op)};
}

std::vector<SaveSelector> ReadSaveSelectors(const MemoryPolicyOptions& options) {
  if (!options.full_recompute_save_ops.empty() && options.policy != MemoryPolicy::kFull) {
    Fail(ErrorCode::kConflictingOptions,
         "save selectors belong to memory policy full, but the policy is {}; leave them out, or "
         "choose full",
         EnumName(options.policy));
  }
  std::vector<SaveSelector> selectors;
  for (const std::string& text : options.full_recompute_save_ops)
    selectors.push_back(ParseSaveSelector(text));
  return selectors;
}

ApplyMemoryPolicy::ApplyMemoryPolicy(MemoryPolicyOptions options) {
  Declare(&options_);
  options_ = std::move(options);
}

const PassInfo& ApplyMemoryPolicy::info() const {
  static constexpr PassInfo kInfo = {
      .name = "memory_policy",
      .summary = "Decides which forward values are kept and which the backward computes again.",
      .description =
          "Policy none keeps everything. Default keeps matrix products, attention, the choice of "
          "experts, and what was exchanged between ranks. Eager is default with every second "
          "matrix "
          "product of a layer computed again. Full computes everything again but what `save` "
          "names. "
          "Under every policy sizes read from data, states of random generators and what the step "
          "returns are kept, and so is what enters a layer from the ones before it, as far as the "
          "layer computes with it again and it is not made of parameters alone. Views are made "
          "again from what they look into, random values from the state of their generator. A wait "
          "goes with its collective.",
      .reads = "phases, roles and names of modules, operator facts, outputs.",
      .writes = "the recompute tag of forward nodes, whatever it was before.",
      .never =
          "tags a gather of parameters, what leads to it or is made of it, since "
          "reshard_after_forward decides how long gathered parameters live, nor anything of loss "
          "and backward.",
      .by_block = true,
  };
  return kInfo;
}

bool ApplyMemoryPolicy::RunImpl(Graph& graph, PassContext& /*context*/) {
  Decisions decisions(graph, options_.policy, ReadSaveSelectors(options_));
  bool changed = false;
  for (Node* node : graph.nodes()) {
    if (node->meta().phase != Phase::kForward) continue;
    const Recompute tag = decisions.Of(*node);
    saved_ += tag == Recompute::kMustSave ? 1 : 0;
    recomputed_ += IsRecomputed(tag) ? 1 : 0;
    changed |= node->meta().recompute != tag;
    node->meta().recompute = tag;
  }
  between_layers_ += decisions.saved_between_layers();
  for (size_t i = 0; i < options_.full_recompute_save_ops.size(); ++i) {
    if (decisions.SelectorWasUsed(i)) continue;
    log::Warn("memory policy: save selector {} fits no node of the forward",
              Quoted(options_.full_recompute_save_ops[i]));
  }
  return changed;
}

}  // namespace gt
