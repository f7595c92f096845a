// Which nodes compute with parameters alone: casts, gathers, views of them. They can be recomputed
// at any time, since parameters are available throughout the step.
#pragma once

#include "gt/ir/graph.h"
#include "gt/ir/node_map.h"

namespace gt {

// Of forward and loss. Numbers the nodes of the graph; knows nothing of nodes inserted later.
class ParameterNodes {
 public:
  explicit ParameterNodes(Graph& graph) : facts_(graph) {
    for (const Node* node : graph.nodes()) Look(graph, *node);
    for (const Node* node = graph.last(); node != nullptr; node = node->previous()) {
      if (LeadsToCollective(*node)) MarkWhatItNeeds(*node);
    }
  }

  bool Contains(const Node& node) const { return Of(node).of_parameters; }

  // Whether it is one of the nodes around a collective of parameters: what prepares them, the
  // collective, its wait, and everything made of the result. How long these values live is what
  // passes/fsdp/reshard_after_forward.h decides, under every memory policy.
  bool ServesCollective(const Node& node) const { return Of(node).exchanged || Of(node).prepares; }

 private:
  struct Facts {
    bool of_parameters = false;
    bool exchanged = false;  // the result of a collective, or made of it
    bool prepares = false;   // a collective needs it
  };
  const Facts& Of(const Node& node) const { return facts_[node]; }
  Facts& Of(const Node& node) { return facts_[node]; }

  static bool IsCollective(const Node& node) { return node.op().collective != Collective::kNone; }

  // Operands are looked at before the nodes that use them.
  void Look(const Graph& graph, const Node& node) {
    bool all =
        node.operand_count() > 0 && !node.op().random && node.meta().phase != Phase::kBackward;
    bool exchanged = IsCollective(node);
    for (int32_t i = 0; i < node.operand_count() && all; ++i) {
      const Value& operand = *node.operand(i);
      all = IsMadeOfParameters(graph, operand);
      exchanged |= !operand.is_input() && Of(*operand.producer()).exchanged;
    }
    Of(node) = {all, all && exchanged, false};
  }

  bool IsMadeOfParameters(const Graph& graph, const Value& value) const {
    if (!value.is_input()) return Contains(*value.producer());
    return graph.inputs()[static_cast<size_t>(value.index())]->role == InputRole::kParameter;
  }

  bool LeadsToCollective(const Node& node) const {
    return Contains(node) && (IsCollective(node) || Of(node).prepares);
  }

  void MarkWhatItNeeds(const Node& node) {
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      if (const Node* producer = node.operand(i)->producer()) Of(*producer).prepares = true;
    }
  }

  NodeMap<Facts> facts_;
};

}  // namespace gt
