// A graph with its repeated stretches folded. A model of many equal layers is a node list in which one
// stretch follows another; stretches that compute the same become one class of nodes each, with a
// count. Placement then has as many unknowns as one layer has, however many there are, and layers that
// are alike are placed alike.
//
// Stretches are found in the node list itself, by what nodes compute; neither names nor the roles of
// modules are looked at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gt/ir/graph.h"

namespace gt::placement {

// An input of the graph or a node, and all that are like it.
struct FoldedClass {
  const Node* node = nullptr;         // the first of the class; null: an input
  const Input* input = nullptr;       // the first; null: a node
  std::vector<int32_t> members = {};  // numbers of nodes, or positions of inputs, ascending
  int32_t count() const { return static_cast<int32_t>(members.size()); }
  bool is_backward() const { return node != nullptr && node->meta().is_backward(); }
  // The name of the first value; the operator's for nodes without results.
  const std::string& name() const {
    if (input != nullptr) return input->name;
    return node->result_count() > 0 ? node->result()->name() : node->op().name.str();
  }
  int32_t result_count() const { return input != nullptr ? 1 : node->result_count(); }
  const TensorType& result_type(int32_t i) const {
    return input != nullptr ? input->value.type() : node->result(i)->type();
  }
};

// `count` nodes of class `to` take as their operand what as many of class `from` have as their result.
struct FoldedEdge {
  int32_t from = 0;
  int32_t result = 0;
  int32_t to = 0;
  int32_t operand = 0;
  int32_t count = 0;
};

struct FoldedOutput {
  int32_t from = 0;
  int32_t result = 0;
  OutputRole role = OutputRole::kResult;
  int32_t input = -1;  // class of the parameter or buffer it belongs to; -1: none
  int32_t count = 0;
  const Output* output = nullptr;  // the first
};

// Members of a class whose result is used in the same places. The last layer of a model is used by
// something else than the layers before it.
struct FoldedUses {
  int32_t from = 0;
  int32_t result = 0;
  std::vector<int32_t> members = {};
  int32_t places = 0;                 // where each member is used
  std::vector<FoldedEdge> uses = {};  // counts are those of these members
  std::vector<FoldedOutput> outputs = {};
};

struct Folding {
  std::vector<FoldedClass> classes;  // inputs first, then nodes in the order of their first
  std::vector<int32_t> class_of_input;
  std::vector<int32_t> class_of_node;  // by number
  std::vector<FoldedEdge> edges;       // grouped by `to` and operand
  std::vector<FoldedOutput> outputs;
  std::vector<FoldedUses> uses;  // by class and result
};

// Numbers the nodes. Without `fold` every node is a class of its own.
Folding Fold(Graph& graph, bool fold = true);

}  // namespace gt::placement
