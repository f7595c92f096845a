// Which operators of a graph become one kernel. Nodes are visited once, in their order; each joins the
// groups whose results it uses, or one that reads what it reads, if the result is one loop, keeps to the
// order that others rely on, and needs no more memory than the step has at its peak.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "gt/fusion/fuse_options.h"
#include "gt/ir/graph.h"

namespace gt::fusion {

struct Group {
  // In the order of the graph. The group runs where the last of them is.
  std::vector<Node*> members;
  // Nodes outside whose results the group computes again: it reads all that they read anyway.
  std::vector<Node*> recomputed;
};

// Groups of at least two members, in the order of their last ones. Numbers the nodes.
std::vector<Group> FindGroups(Graph& graph, const FuseOptions& options);

// Nodes whose order matters to others: the host, other ranks, copies. No group reaches across one, so
// that what was hidden behind communication stays there.
bool IsBarrier(const Node& node);

// The value that this one shows through views that generated code can look through.
Value* BaseOf(Value* value);

// Results of the group that others use, in order. Asks which uses other groups recompute.
class GroupUses {
 public:
  GroupUses(int32_t nodes, const std::vector<Group>& groups);
  bool IsNeeded(const Value& result) const;
  // -1: in none.
  int32_t GroupOf(const Node& node) const { return group_of_[static_cast<size_t>(node.number())]; }

 private:
  bool Computes(size_t group, const Node& node) const;

  std::vector<int32_t> group_of_;  // by number of the node
  std::unordered_multimap<const Node*, size_t> recomputed_by_;
  const std::vector<Group>& groups_;
};

// The group as a graph of its own. `inputs` are the values outside that it reads, in the order of the
// graph's inputs; `outputs` the results that are needed outside, in the order of its outputs.
struct GroupBody {
  std::shared_ptr<Graph> graph;
  std::vector<Value*> inputs;
  std::vector<Value*> outputs;
};
GroupBody MakeBody(const Group& group, const GroupUses& uses);

}  // namespace gt::fusion
