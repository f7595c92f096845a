#include "gt/passes/chunk/chunker.h"

#include <algorithm>
#include <utility>

namespace gt {

Chunker::Chunker(Graph& graph, const ChunkOptions& options, SymbolId symbol)
    : state_(graph, options, symbol),
      boundaries_(state_),
      bodies_(state_, boundaries_, options.keep_chunks_across_roots),
      waiting_(static_cast<size_t>(graph.node_count()), ChunkRegions::kNone),
      stretches_(static_cast<size_t>(state_.regions.region_count())) {
  int64_t bodies = 0;
  for (int32_t r = 0; r < state_.regions.region_count(); ++r) {
    StretchOf(r).missing = state_.regions.size(r);
    bodies += state_.regions.size(r);
  }
  graph.ReserveNames(static_cast<size_t>(2 * graph.node_count() + bodies * options.num_chunks));
  for (const Node* node : state_.cuts.mixing_nodes()) {
    const int32_t region = state_.regions.Of(*node);
    if (region == ChunkRegions::kNone) continue;
    state_.cuts.RejectMixing(*node, state_.RootName(region));
  }
}

void Chunker::Run() {
  std::vector<Node*> originals;
  for (Node *node = state_.graph.first(), *next = nullptr; node != nullptr; node = next) {
    next = node->next();
    int32_t region = state_.regions.Of(*node);
    if (state_.regions.IsReplacedSum(*node)) {
      originals.push_back(node);
    } else if (region == ChunkRegions::kNone) {
      PassOutside(node);
    } else {
      originals.push_back(node);
      PassBody(node, region, next);
    }
  }
  for (int32_t r = 0; r < state_.regions.region_count(); ++r) Emit(r, nullptr);
  for (const auto& output : state_.graph.outputs()) {
    if (state_.IsOfBody(*output->value()))
      output->use.Set(boundaries_.ReturnWhole(output->value(), *output, nullptr));
  }
  for (auto node = originals.rbegin(); node != originals.rend(); ++node) {
    if (!(*node)->has_uses()) state_.graph.Erase(*node);  // see ChunkBoundaries::Whole
  }
}

void Chunker::PassOutside(Node* node) {
  std::vector<int32_t> needed;
  for (int32_t i = 0; i < node->operand_count(); ++i) AddNeeded(*node->operand(i), needed);
  if (node->op().random) {
    EmitBeforeDraw(node, ChunkRegions::kNone);
  } else if (needed.size() == 1 && node->bound_symbols().empty()) {  // else sizes would be early
    StretchOf(needed[0]).behind.push_back(node);
    LetWait(node, needed[0]);
    return;
  } else {
    for (int32_t region : needed) Emit(region, node);
  }
  boundaries_.UseWholes(node);
}

// The regions that an operand of a node outside waits for, each once.
void Chunker::AddNeeded(Value& operand, std::vector<int32_t>& needed) const {
  auto add = [&](const Value& value) {
    int32_t region = WaitsFor(value);
    if (region == ChunkRegions::kNone) return;
    if (std::find(needed.begin(), needed.end(), region) == needed.end()) needed.push_back(region);
  };
  if (operand.is_input()) return;
  if (!state_.regions.IsReplacedSum(*operand.producer())) return add(operand);
  for (const Value* addend : state_.regions.Addends(&operand)) add(*addend);
}

// Draws keep their order: what waits for other regions may draw.
void Chunker::EmitBeforeDraw(Node* node, int32_t region) {
  const std::vector<int32_t> open = open_;
  for (int32_t other : open) {
    if (other != region) Emit(other, node);
  }
}

void Chunker::PassBody(Node* node, int32_t region, Node* next) {
  if (node->op().random) EmitBeforeDraw(node, region);
  for (int32_t i = 0; i < node->operand_count(); ++i) {
    const Value& operand = *node->operand(i);
    int32_t needed = WaitsFor(operand);
    bool together = needed == region && state_.regions.Of(operand) == region;
    if (needed != ChunkRegions::kNone && !together) Emit(needed, node);
  }
  Stretch& stretch = StretchOf(region);
  if (stretch.body.empty()) open_.push_back(region);
  stretch.body.push_back(node);
  LetWait(node, region);
  if (--stretch.missing == 0) Emit(region, next);
}

// Copies what waits for the region; inserts before the node `before`.
void Chunker::Emit(int32_t region, Node* before) {
  Stretch& stretch = StretchOf(region);
  std::erase(open_, region);
  std::vector<Node*> body = std::exchange(stretch.body, {});
  std::vector<Node*> behind = std::exchange(stretch.behind, {});
  const bool backward = ChunkRegions::IsBackward(region);
  for (int64_t turn = 0; turn < state_.symbols.chunks(); ++turn) {
    // Like autograd: what was computed last is differentiated first.
    int64_t chunk = backward ? state_.symbols.chunks() - 1 - turn : turn;
    for (Node* node : body) bodies_.Copy(*node, region, chunk, before);
  }
  for (Node* node : body) LetWait(node, ChunkRegions::kNone);
  for (Node* node : body) {
    for (int32_t i = 0; i < node->result_count(); ++i) ReturnFrom(*node->result(i), before);
  }
  for (Node* node : behind) {
    LetWait(node, ChunkRegions::kNone);
    state_.graph.MoveBefore(node, before);
    boundaries_.UseWholes(node);
  }
}

// Makes what the step returns as soon as all chunks exist, so that they need not be kept.
void Chunker::ReturnFrom(Value& value, Node* before) {
  for (const Use& use : value.uses()) {
    if (use.node() == nullptr) {
      boundaries_.ReturnWhole(&value, *state_.graph.outputs()[static_cast<size_t>(use.index())],
                              before);
    } else if (state_.regions.IsReplacedSum(*use.node())) {
      Value& sum = *use.node()->result();
      std::vector<Value*> addends = state_.regions.Addends(&sum);
      bool complete = std::all_of(addends.begin(), addends.end(), [this](const Value* addend) {
        return state_.CopyOf(*addend, 0) != nullptr && WaitsFor(*addend) == ChunkRegions::kNone;
      });
      if (complete) ReturnFrom(sum, before);
    }
  }
}

}  // namespace gt
