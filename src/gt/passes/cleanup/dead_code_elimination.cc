#include "gt/passes/cleanup/dead_code_elimination.h"

#include <algorithm>

#include "gt/analysis/nested.h"

namespace gt {
namespace {

// The data symbols that nodes seen so far mention. Sweeping backward, all mentions of a symbol are
// seen before the node that binds it.
class LiveSymbols {
 public:
  explicit LiveSymbols(const ShapeEnv& shapes) {
    const std::vector<Symbol>& symbols = shapes.symbols();
    // Most graphs have no data symbols, and then there is nothing to follow.
    auto is_data = [](const Symbol& symbol) { return symbol.kind == Symbol::Kind::kData; };
    if (std::any_of(symbols.begin(), symbols.end(), is_data)) live_.resize(symbols.size(), false);
  }

  bool BoundBy(const Node& node) const {
    auto is_live = [this](SymbolId id) { return live_[id]; };
    return std::any_of(node.bound_symbols().begin(), node.bound_symbols().end(), is_live);
  }

  void AddMentions(const Node& node) {
    if (live_.empty()) return;
    for (int32_t i = 0; i < node.result_count(); ++i) Add(node.result(i)->type());
    for (const Argument& arg : node.args()) {
      if (const auto* dim = std::get_if<Dim>(&arg)) Add(*dim);
      if (const auto* dims = std::get_if<Shape>(&arg)) Add(*dims);
    }
    Add(node.view_offsets());
    ForEachNestedGraph(node, [this](const Graph& nested) {
      for (const auto& input : nested.inputs()) Add(input->value.type());
      for (const Node* inner : nested.nodes()) AddMentions(*inner);
    });
  }

 private:
  void Add(const TensorType& type) {
    Add(type.sizes);
    Add(type.strides);
  }
  void Add(std::span<const Dim> dims) {
    for (const Dim& dim : dims) Add(dim);
  }
  void Add(const Dim& dim) {
    if (!dim.is_const()) dim.ForEachSymbol(mark_);
  }

  std::vector<bool> live_;  // empty: the graph has no data symbols
  std::function<void(SymbolId)> mark_ = [this](SymbolId id) { live_[id] = true; };
};

}  // namespace

DeadCodeElimination::DeadCodeElimination(DeadCodeEliminationOptions options) {
  Declare(&options_);
  options_ = options;
}

const PassInfo& DeadCodeElimination::info() const {
  static constexpr PassInfo kInfo = {
      .name = "dce",
      .summary = "Removes nodes whose results nothing uses.",
      .description =
          "One backward sweep. A node that binds data symbols stays as long as any type or "
          "argument "
          "that stays mentions one of them: the sizes it reads are needed even if its tensors are "
          "not.",
      .reads =
          "uses, operator facts (random, collective, side effect), symbols in types and arguments.",
      .writes = "nothing but the removal of nodes, in nested graphs too.",
      .never =
          "removes random operators or collectives unless told to, operators with side effects, "
          "inputs, "
          "symbols, or guards: a guard is a condition of the capture, not of the node that asked.",
  };
  return kInfo;
}

bool DeadCodeElimination::RunImpl(Graph& graph, PassContext& /*context*/) {
  bool changed = RewriteNestedGraphs(graph, [this](Graph& nested) { return Run(nested); });
  return Sweep(graph) || changed;
}

bool DeadCodeElimination::Sweep(Graph& graph) {
  bool changed = false;
  LiveSymbols live(graph.shapes());
  for (Node *node = graph.last(), *previous = nullptr; node != nullptr; node = previous) {
    previous = node->previous();
    bool unused = !node->has_uses() && !live.BoundBy(*node);
    if (unused && MayErase(node->op())) {
      graph.Erase(node);
      ++erased_;
      changed = true;
      continue;
    }
    if (unused) ++kept_;
    live.AddMentions(*node);
  }
  return changed;
}

bool DeadCodeElimination::MayErase(const Operator& op) const {
  if (op.side_effect) return false;
  if (op.random && !options_.drop_random) return false;
  return op.collective == Collective::kNone || options_.drop_collectives;
}

}  // namespace gt
