#include "gt/analysis/dependencies.h"

#include <algorithm>

#include "gt/base/error.h"
#include "gt/ir/text.h"

namespace gt {
namespace {

// Who reads each data symbol, and which of them a node mentions.
class DataSymbols {
 public:
  explicit DataSymbols(const Graph& graph) : readers_(graph.shapes().symbols().size(), -1) {}

  void Read(const Node& node) {
    for (SymbolId symbol : node.bound_symbols()) {
      readers_[static_cast<size_t>(symbol)] = node.number();
      any_ = true;
    }
  }

  template <typename Visit>
  void ForEachReader(const Node& node, Visit&& visit) const {
    if (!any_) return;
    ForEachMention(node, [&](const Dim& dim) {
      if (dim.is_const()) return;
      dim.ForEachSymbol([&](SymbolId symbol) {
        int32_t reader = readers_[static_cast<size_t>(symbol)];
        if (reader >= 0 && reader != node.number()) visit(reader);
      });
    });
  }

 private:
  // Every size, argument and offset, also in the functions that the node runs.
  template <typename Look>
  static void ForEachMention(const Node& node, const Look& look) {
    auto look_at_all = [&](std::span<const Dim> dims) {
      for (const Dim& dim : dims) look(dim);
    };
    auto look_at_type = [&](const TensorType& type) {
      look_at_all(type.sizes);
      look_at_all(type.strides);
    };
    for (const Argument& argument : node.args()) {
      if (const auto* dim = std::get_if<Dim>(&argument)) look(*dim);
      if (const auto* shape = std::get_if<Shape>(&argument)) look_at_all(*shape);
    }
    for (int32_t i = 0; i < node.result_count(); ++i) look_at_type(node.result(i)->type());
    look_at_all(node.view_offsets());
    ForEachNestedGraph(node, [&](const Graph& nested) {
      for (const auto& input : nested.inputs()) look_at_type(input->value.type());
      for (const Node* inner : nested.nodes()) ForEachMention(*inner, look);
    });
  }

  std::vector<int32_t> readers_;  // by symbol; -1: not read
  bool any_ = false;
};

std::string NameOf(const Node& node) {
  return node.result_count() > 0 ? "%" + node.result()->name() : node.op().name.str();
}

// What ties the later of two nodes to the earlier.
std::string TieBetween(const Node& earlier, const Node& later) {
  for (int32_t i = 0; i < later.operand_count(); ++i) {
    if (later.operand(i)->producer() == &earlier) return "uses %" + later.operand(i)->name();
  }
  if (!earlier.bound_symbols().empty()) return "mentions a number that it reads";
  if (earlier.op().random && later.op().random) return "draws from the same generator after it";
  return "has a side effect that comes after it";
}

}  // namespace

Dependencies::Dependencies(Graph& graph) : nodes_(NodesByNumber(graph)) {
  Collect(graph);
  Transpose();
}

void Dependencies::Collect(const Graph& graph) {
  DataSymbols symbols(graph);
  needs_.begin.reserve(static_cast<size_t>(count()) + 1);
  needs_.begin.push_back(0);
  int32_t last_random = -1, last_effect = -1;
  for (const Node* node : nodes_) {
    const auto begin = needs_.entries.size();
    auto need = [&](int32_t number) { needs_.entries.push_back(number); };
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      if (const Node* producer = node->operand(i)->producer()) need(producer->number());
    }
    symbols.ForEachReader(*node, need);
    symbols.Read(*node);
    if (node->op().random) {
      if (last_random >= 0) need(last_random);
      last_random = node->number();
    }
    if (node->op().side_effect) {
      if (last_effect >= 0) need(last_effect);
      last_effect = node->number();
    }
    auto first = needs_.entries.begin() + static_cast<std::ptrdiff_t>(begin);
    std::sort(first, needs_.entries.end());
    needs_.entries.erase(std::unique(first, needs_.entries.end()), needs_.entries.end());
    needs_.begin.push_back(static_cast<int32_t>(needs_.entries.size()));
  }
}

void Dependencies::Transpose() {
  std::vector<int32_t> next(static_cast<size_t>(count()) + 1, 0);
  for (int32_t needed : needs_.entries) ++next[static_cast<size_t>(needed) + 1];
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  users_.begin = next;
  users_.entries.resize(needs_.entries.size());
  for (int32_t number = 0; number < count(); ++number) {
    for (int32_t needed : NeededBy(number)) {
      auto& place = next[static_cast<size_t>(needed)];
      users_.entries[static_cast<size_t>(place++)] = number;
    }
  }
}

bool ApplyOrder(Graph& graph, const Dependencies& dependencies, std::span<const int32_t> order) {
  GT_CHECK(static_cast<int32_t>(order.size()) == dependencies.count(),
           "an order must name every node");
  NodeMap<bool> done(dependencies.count(), false);
  bool changed = false;
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t number = order[i];
    const Node& node = *dependencies.node(number);
    GT_CHECK(!done[number], "an order names a node twice");
    for (int32_t needed : dependencies.NeededBy(number)) {
      if (done[needed]) continue;
      const Node& missing = *dependencies.node(needed);
      Fail(ErrorCode::kIllegalOrder,
           "{} (module '{}', {}) would run before {} (module '{}'): it {}", NameOf(node),
           node.meta().module.str(), Spelling(node.meta().phase), NameOf(missing),
           missing.meta().module.str(), TieBetween(missing, node));
    }
    done[number] = true;
    changed |= number != static_cast<int32_t>(i);
  }
  if (!changed) return false;
  for (int32_t number : order) graph.MoveBefore(dependencies.node(number), nullptr);
  return true;
}

}  // namespace gt
