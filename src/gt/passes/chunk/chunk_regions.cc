#include "gt/passes/chunk/chunk_regions.h"

#include <algorithm>
#include <string_view>

#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/passes/chunk/chunk_cuts.h"

namespace gt {
namespace {

bool Mentions(const Dim& dim, SymbolId symbol) { return !dim.is_const() && dim.Contains(symbol); }

bool IsSum(const Node& node) {
  static const Operator* const kAdd = FindOperator("aten::add.Tensor");
  return &node.op() == kAdd && node.operand_count() == 2;
}

// Whether f(a + b) is f(a) + f(b), and f has no operand that is not a part of the sum.
bool IsLinear(const Node& node) {
  if (node.op().collective == Collective::kReduceScatter ||
      node.op().collective == Collective::kAllReduce) {
    const auto* reduction = std::get_if<std::string>(&node.arg(1));
    return reduction != nullptr && *reduction == "sum";
  }
  if (node.op().collective == Collective::kWait) {
    // No sum may be between a collective and the wait for it.
    const Value& awaited = *node.operand(0);
    return !awaited.is_input() && awaited.has_one_use() && IsLinear(*awaited.producer());
  }
  return node.op().linearity ==
         (node.operand_count() == 1 ? Linearity::kOneOperand : Linearity::kAllOperands);
}

}  // namespace

ChunkRegions::ChunkRegions(Graph& graph, const ChunkOptions& options, SymbolId symbol)
    : symbol_(symbol), dim_(options.chunk_dim) {
  graph.NumberNodes();
  cut_symbols_.resize(graph.shapes().symbols().size(), false);
  cut_symbols_[symbol] = true;
  FindRoots(graph, options);
  FindBodies(graph);
  if (!options.disable_early_grad_accumulation) CutOffSuffixes(graph);
  FindReplacedSums(graph);
  FollowGradients(graph);
  FindUpdates(graph);
}

int32_t ChunkRegions::Matching(Name module, const std::string& pattern) {
  auto [found, is_new] = matching_.try_emplace(module, kNone);
  if (!is_new) return found->second;
  std::optional<std::string_view> prefix = MatchingPrefix(pattern, module.str());
  if (!prefix) return kNone;
  Name name(*prefix);
  int32_t root = kNone;
  if (name == module) {
    root = root_count();
    roots_.push_back({name});
  } else {
    root = Matching(name, pattern);
  }
  return matching_[module] = root;
}

void ChunkRegions::FindRoots(const Graph& graph, const ChunkOptions& options) {
  bool any = false;
  for (const Node* node : graph.nodes()) {
    int32_t root = Matching(node->meta().module, options.module_fqn);
    if (root == kNone || node->op().collective != Collective::kAllToAll) continue;
    any = roots_[static_cast<size_t>(root)].exchanges = true;
  }
  if (any) return;
  // All experts on one rank: nothing travels, but the labels say where it would.
  for (const Node* node : graph.nodes()) {
    int32_t root = matching_.at(node->meta().module);
    if (root == kNone || node->meta().ep_role == EpRole::kNone) continue;
    any = roots_[static_cast<size_t>(root)].exchanges = true;
  }
  if (any) return;
  Fail(ErrorCode::kNothingToChunk,
       "no module that the pattern '{}' names exchanges tokens between ranks or has experts; {}",
       options.module_fqn,
       roots_.empty()
           ? "it names no module of the step"
           : fmt::format("it names {} and {} others", roots_[0].name.str(), roots_.size() - 1));
}

void ChunkRegions::FindBodies(const Graph& graph) {
  auto count = static_cast<size_t>(graph.node_count());
  regions_.reserve(count);
  sizes_.resize(static_cast<size_t>(region_count()), 0);
  made_of_sizes_.resize(count, false);
  std::vector<bool> pure(count, false);  // made of numbers alone
  for (const Node* node : graph.nodes()) {
    auto number = static_cast<size_t>(node->number());
    int32_t root = matching_.at(node->meta().module);
    bool makes = node->result_count() > 0 && !node->op().random && !node->op().reads_data &&
                 node->op().collective == Collective::kNone;
    for (int32_t i = 0; i < node->operand_count() && makes; ++i) {
      const Node* producer = node->operand(i)->producer();
      makes = producer != nullptr && pure[static_cast<size_t>(producer->number())];
    }
    pure[number] = makes;
    const bool influenced = root != kNone && IsInfluenced(*node);
    made_of_sizes_[number] = makes && influenced;
    bool cut = root != kNone && roots_[static_cast<size_t>(root)].exchanges &&
               node->meta().phase != Phase::kLoss && (node->op().random || influenced);
    regions_.push_back(kNone);
    if (!cut) continue;
    CheckBody(*node, root);
    regions_[number] = 2 * root + (node->meta().phase == Phase::kBackward ? 1 : 0);
    ++sizes_[static_cast<size_t>(regions_[number])];
    for (SymbolId id : node->bound_symbols()) cut_symbols_[id] = true;
  }
  for (int32_t root = 0; root < root_count(); ++root) {
    if (!roots_[static_cast<size_t>(root)].exchanges || size(2 * root) > 0) continue;
    Fail(ErrorCode::kNothingToChunk,
         "{}: none of its values depends on the symbol {}, so there is nothing to cut",
         name(root).str(), graph.shapes().NameOf(symbol_));
  }
}

bool ChunkRegions::MentionsCut(const Dim& dim) const {
  if (dim.is_const()) return false;
  bool found = false;
  dim.ForEachSymbol([&](SymbolId id) { found |= cut_symbols_[id]; });
  return found;
}

bool ChunkRegions::MentionsCut(const Shape& shape) const {
  return std::any_of(shape.begin(), shape.end(),
                     [this](const Dim& dim) { return MentionsCut(dim); });
}

bool ChunkRegions::IsInfluenced(const Node& node) const {
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    const Value& operand = *node.operand(i);
    if (Of(operand) != kNone || MentionsCut(operand.type().sizes)) return true;
  }
  for (const Argument& arg : node.args()) {
    const auto* dim = std::get_if<Dim>(&arg);
    const auto* shape = std::get_if<Shape>(&arg);
    if ((dim != nullptr && MentionsCut(*dim)) || (shape != nullptr && MentionsCut(*shape))) {
      return true;
    }
  }
  return false;
}

void ChunkRegions::CheckBody(const Node& node, int32_t root) const {
  if (dim_ == ChunkDim::kSeq && node.op().work == Work::kAttention) {
    Fail(ErrorCode::kChunkAttention,
         "{} cannot be cut along the sequence: {} is attention, which needs all keys and values",
         name(root).str(), Describe(node));
  }
  for (int32_t i = 0; i < node.result_count(); ++i) {
    const Shape& sizes = node.result(i)->type().sizes;
    auto dims = std::count_if(sizes.begin(), sizes.end(),
                              [this](const Dim& dim) { return Mentions(dim, symbol_); });
    if (dims < 2) continue;
    Fail(ErrorCode::kChunkSplit,
         "{} cannot be cut: {} dimensions of {} grow with {}, so that it relates the chunks to "
         "each other",
         name(root).str(), dims, Describe(node), node.graph().shapes().NameOf(symbol_));
  }
  if (node.meta().phase == Phase::kBackward) return;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    const Node* producer = node.operand(i)->producer();
    if (producer == nullptr || producer->meta().phase != Phase::kBackward) continue;
    Fail(ErrorCode::kChunkSplit,
         "{} cannot be cut: {} belongs to its forward, but uses %{}, which the backward computes",
         name(root).str(), Describe(node), node.operand(i)->name());
  }
}

void ChunkRegions::Leave(const Node& node) {
  int32_t& region = regions_[static_cast<size_t>(node.number())];
  if (region == kNone) return;
  --sizes_[static_cast<size_t>(region)];
  region = kNone;
  left_.insert(&node);
}

void ChunkRegions::CutOffSuffixes(const Graph& graph) {
  for (const auto& output : graph.outputs()) {
    if (output->role != OutputRole::kGradient) continue;
    std::vector<const Node*> suffix;
    if (!EndsWithCollective(output->value(), suffix)) continue;
    for (const Node* node : suffix) Leave(*node);
  }
}

// Collects what follows the last computation with the chunked symbol, down to a cast (sums are then
// made in the wider type) or to the computation. True if a collective is among it.
bool ChunkRegions::EndsWithCollective(const Value* value, std::vector<const Node*>& suffix) const {
  bool collective = false;
  while (true) {
    const Node* node = value->producer();
    if (node == nullptr || !value->has_one_use() || node->result_count() != 1) return collective;
    if (IsSum(*node)) {  // of gradients that come from several places
      size_t before = suffix.size();
      suffix.push_back(node);
      if (EndsWithCollective(node->operand(0), suffix) &&
          EndsWithCollective(node->operand(1), suffix)) {
        return true;
      }
      suffix.resize(before);
      return collective;
    }
    if (!IsLinear(*node)) return collective;
    const Value* operand = node->operand(0);
    bool cast = operand->type().dtype != value->type().dtype;
    if (operand->type().Mentions(symbol_) || (collective && cast)) return collective;
    collective |= node->op().collective != Collective::kNone;
    suffix.push_back(node);
    value = operand;
  }
}

void ChunkRegions::FindReplacedSums(const Graph& graph) {
  std::vector<const Node*> sums;  // each before those that it adds up
  for (const auto& output : graph.outputs()) {
    if (output->role != OutputRole::kGradient) continue;
    std::vector<const Value*> pending = {output->value()};
    while (!pending.empty()) {
      const Value* sum = pending.back();
      pending.pop_back();
      if (sum->is_input() || !IsSum(*sum->producer()) || !sum->has_one_use() ||
          sum->type().Mentions(symbol_)) {
        continue;
      }
      sums.push_back(sum->producer());
      pending.push_back(sum->producer()->operand(0));
      pending.push_back(sum->producer()->operand(1));
    }
  }
  std::unordered_map<const Node*, int32_t> regions;  // of those replaced
  auto region_of = [&](const Value& value) {
    auto found = regions.find(value.producer());
    return found == regions.end() ? Of(value) : found->second;
  };
  for (auto sum = sums.rbegin(); sum != sums.rend(); ++sum) {
    const Node& node = **sum;
    const int32_t region = Of(node);
    if (region == kNone) continue;
    if (region_of(*node.operand(0)) == region && region_of(*node.operand(1)) == region) {
      replaced_sums_.insert(&node);
      regions.emplace(&node, region);
    }
    // Gradients of several modules are added outside of them: once, not by each chunk.
    Leave(node);
  }
}

std::vector<Value*> ChunkRegions::Addends(Value* gradient) const {
  std::vector<Value*> addends, pending = {gradient};
  while (!pending.empty()) {
    Value* value = pending.back();
    pending.pop_back();
    if (!value->is_input() && IsReplacedSum(*value->producer())) {
      pending.push_back(value->producer()->operand(1));
      pending.push_back(value->producer()->operand(0));
    } else {
      addends.push_back(value);
    }
  }
  return addends;
}

void ChunkRegions::FollowGradients(const Graph& graph) {
  std::vector<const Value*> pending;
  for (const auto& output : graph.outputs()) {
    if (output->role == OutputRole::kGradient) pending.push_back(output->value());
  }
  while (!pending.empty()) {
    const Node* node = pending.back()->producer();
    pending.pop_back();
    if (node == nullptr || Of(*node) != kNone || !IsLinear(*node) || IsReplacedSum(*node)) continue;
    if (!leads_to_gradient_.insert(node).second) continue;
    for (int32_t i = 0; i < node->operand_count(); ++i) pending.push_back(node->operand(i));
  }
}

void ChunkRegions::FindUpdates(const Graph& graph) {
  std::unordered_map<std::string_view, Value*> updates;
  for (const auto& output : graph.outputs()) {
    if (output->role != OutputRole::kBufferUpdate || Of(*output->value()) == kNone) continue;
    updates.emplace(output->name, output->value());
    updated_.insert(output->value());
  }
  for (const auto& input : graph.inputs()) {
    if (input->role != InputRole::kBuffer) continue;
    if (auto found = updates.find(input->name); found != updates.end()) {
      updates_.emplace(&input->value, found->second);
    }
  }
}

}  // namespace gt
