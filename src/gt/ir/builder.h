// Making nodes: a new one by the names of its arguments, or a copy of one.
//
//   NodeBuilder(graph, *kView).Set("self", value).Set("size", sizes).With(meta).Insert(before);
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

// One node. Arguments that are not given take their defaults; operands are numbered in the order of
// the schema; the result types follow by the operator's rule.
class NodeBuilder {
 public:
  NodeBuilder(Graph& graph, const Operator& op);
  NodeBuilder(Graph& graph, std::string_view op);

  NodeBuilder& Set(std::string_view argument, Argument value);
  NodeBuilder& Set(std::string_view argument, Value* value);
  // A null stands for a missing element.
  NodeBuilder& Set(std::string_view argument, std::vector<Value*> values);
  NodeBuilder& With(Meta meta) {
    spec_.meta = std::move(meta);
    return *this;
  }
  // Of the first result; otherwise made from the operator.
  NodeBuilder& Named(std::string name) {
    spec_.name = std::move(name);
    return *this;
  }

  Graph::NodeSpec Spec();
  Node* Insert(Node* before = nullptr) { return graph_.Insert(Spec(), before); }
  Value* Result(Node* before = nullptr) { return Insert(before)->result(); }

 private:
  size_t At(std::string_view argument) const;

  Graph& graph_;
  Graph::NodeSpec spec_;
  std::vector<std::vector<Value*>> given_;  // operands, by argument
};

// The same operator, operands, arguments and metadata; the name is left to the operator.
Graph::NodeSpec SpecOf(const Node& node);
// The same types and view offsets. Names and bound symbols are the node's own.
Graph::Typed TypedOf(const Node& node);

}  // namespace gt
