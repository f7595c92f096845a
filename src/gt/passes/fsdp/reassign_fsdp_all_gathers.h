// Gives gathers of parameters a process group of their own where they share one with others.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/passes/framework/pass.h"

namespace gt {

// Which parameter a value is made of: casts, pads, views and gathers of one parameter, in the
// forward and, where it is gathered again, in the backward. (ParameterNodes tells about the forward
// alone, and does not say which parameter.)
class ParameterOrigins {
 public:
  // Numbers the nodes; knows nothing of nodes inserted later.
  explicit ParameterOrigins(Graph& graph);

  // Position among the graph's inputs, or -1.
  int32_t Of(const Node& node) const { return origins_[static_cast<size_t>(node.number())]; }
  // Whether the node gathers a parameter; a gather of activations has no origin.
  bool IsParameterGather(const Node& node) const {
    return node.op().collective == Collective::kAllGather && Of(node) >= 0;
  }

 private:
  std::vector<int32_t> origins_;  // by number
};

// Collectives of one group run one after the other. On a group of their own, gathers for the next
// block run while gradients of this one are reduced.
class ReassignFsdpAllGathers : public Pass {
 public:
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  Counter groups_moved_{this, "groups", "groups whose gathers got a group of their own"};
  Counter nodes_moved_{this, "gathers", "gathers of parameters that moved there"};
};

}  // namespace gt
