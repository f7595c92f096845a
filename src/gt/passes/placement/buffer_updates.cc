#include "gt/passes/placement/buffer_updates.h"

#include <vector>

namespace gt {

void DeferBufferUpdates(Graph& graph) {
  graph.NumberNodes();
  std::vector<bool> only(static_cast<size_t>(graph.node_count()), false);
  for (const Node* node = graph.last(); node != nullptr; node = node->previous()) {
    // What nobody uses leads nowhere else.
    bool leads = node->result_count() > 0 && !node->op().random && !node->op().side_effect;
    for (int32_t i = 0; leads && i < node->result_count(); ++i) {
      for (const Use& use : node->result(i)->uses()) {
        leads = leads &&
                (use.node() != nullptr ? only[static_cast<size_t>(use.node()->number())]
                                       : graph.outputs()[static_cast<size_t>(use.index())]->role ==
                                             OutputRole::kBufferUpdate);
      }
    }
    only[static_cast<size_t>(node->number())] = leads;
  }
  std::vector<Node*> late;
  std::vector<bool> is_late(only.size(), false);
  for (Node* node : graph.nodes()) {
    if (!only[static_cast<size_t>(node->number())]) continue;
    bool waits = node->op().collective == Collective::kWait;
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      const Node* producer = node->operand(i)->producer();
      waits = waits || (producer != nullptr && is_late[static_cast<size_t>(producer->number())]);
    }
    if (!waits) continue;
    is_late[static_cast<size_t>(node->number())] = true;
    late.push_back(node);
  }
  for (Node* node : late) graph.MoveBefore(node, nullptr);
}

}  // namespace gt
