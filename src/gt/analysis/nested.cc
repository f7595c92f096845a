#include "gt/analysis/nested.h"

#include <unordered_map>

namespace gt {

bool RewriteNestedGraphs(Graph& graph, const std::function<bool(Graph&)>& rewrite) {
  bool changed = false;
  std::unordered_map<GraphRef, GraphRef> images;
  for (Node* node : graph.nodes()) {
    for (int32_t i = 0; i < static_cast<int32_t>(node->args().size()); ++i) {
      const auto* nested = std::get_if<GraphRef>(&node->arg(i));
      if (nested == nullptr || *nested == nullptr) continue;
      auto [image, fresh] = images.try_emplace(*nested, *nested);
      if (fresh) {
        std::unique_ptr<Graph> copy = (*nested)->Clone();
        copy->ShareShapes(graph);
        if (rewrite(*copy)) image->second = std::move(copy);
      }
      if (image->second == *nested) continue;
      node->SetArg(i, image->second);
      changed = true;
    }
  }
  return changed;
}

}  // namespace gt
