// Nodes of the whole step as nodes of a rank's: the same operator on shards, inferred again.
#pragma once

#include <unordered_map>
#include <vector>

#include "gt/passes/placement/node_maker.h"

namespace gt {

class LocalNodes {
 public:
  explicit LocalNodes(NodeMaker& make) : make_(make) {}

  // The node itself, with other operands and arguments; values keep their names where they are free.
  Node* Emit(const Node& node, std::vector<Value*> operands, std::vector<Argument> args);

 private:
  Graph::Typed Infer(const Node& node, Graph::NodeSpec& spec);
  Value* InOrderOf(const Value& whole, Value* shard);
  void FitNestedGraphs(std::vector<Argument>& args, const std::vector<Value*>& operands);
  GraphRef Fitting(const GraphRef& nested, const std::vector<const TensorType*>& captures);

  NodeMaker& make_;
  std::unordered_map<const Graph*, std::vector<GraphRef>> nested_;
};

}  // namespace gt
