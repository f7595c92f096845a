#include "gt/report/box_region.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "gt/base/error.h"
#include "gt/base/fqn_pattern.h"
#include "gt/base/text.h"
#include "gt/report/box_text.h"

namespace gt::boxes {
namespace {

const Node* SameInEarlierChunk(const Node& node) {
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

}  // namespace

Region::Region(const Graph& graph, const PictureOptions& options) : options_(options) {
  if (std::string problem = FqnPatternProblem(options.module_fqn); !problem.empty()) {
    Fail(ErrorCode::kBadOptionValue, "the pattern of modules {}: {}", Quoted(options.module_fqn),
         problem);
  }
  for (const Node* node : graph.nodes()) {
    if (const Place* place = PlaceOf(*node)) Add(*node, *place);
  }
  if (nodes_.empty()) FailEmpty(graph);
  for (size_t i = 0; i < nodes_.size(); ++i) FindNeeds(i);
  FindBufferUpdates(graph);
}

const Place* Region::PlaceOf(const Node& node) {
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

const Place& Region::PlaceOf(Name module) {
  auto [found, is_new] = places_by_module_.try_emplace(module);
  if (!is_new) return found->second;
  if (auto root = MatchingPrefix(options_.module_fqn, module.str())) {
    std::string_view rest = Below(*root, module.str());
    found->second = {Name(*root), Name(rest.substr(0, rest.find('.'))), true};
  }
  return found->second;
}

void Region::Add(const Node& node, const Place& place) {
  several_roots_ |= !nodes_.empty() && root_ != place.root;
  root_ = place.root;
  for (SymbolId symbol : node.bound_symbols()) binder_[symbol] = nodes_.size();
  position_[&node] = nodes_.size();
  nodes_.push_back(&node);
  places_.push_back(&place);
  needs_.emplace_back();
}

void Region::FindNeeds(size_t i) {
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
void Region::FindBufferUpdates(const Graph& graph) {
  for (const auto& output : graph.outputs()) {
    if (output->role != OutputRole::kBufferUpdate) continue;
    const Node* node = output->value()->producer();
    while (node != nullptr && Contains(*node) && buffers_.try_emplace(node, &output->name).second)
      node = SameInEarlierChunk(*node);
  }
}

void Region::FailEmpty(const Graph& graph) const {
  std::vector<std::string> modules;
  std::unordered_map<Name, bool> seen;
  for (const Node* node : graph.nodes()) {
    Name module = node->meta().module;
    if (!module.empty() && seen.try_emplace(module).second) modules.push_back(module.str());
  }
  std::string hint = DidYouMean(options_.module_fqn, modules);
  if (hint.empty() && !modules.empty()) {
    modules.resize(std::min<size_t>(modules.size(), 5));
    hint = fmt::format("; some of its modules are {}", Join(modules, ", "));
  }
  Fail(ErrorCode::kBadOptionValue, "no node of graph @{}{} belongs to a module that '{}' fits{}",
       graph.name(),
       options_.phase == PicturePhase::kAll ? ""
                                            : fmt::format(" in phase {}", EnumName(options_.phase)),
       options_.module_fqn, hint);
}

}  // namespace gt::boxes
