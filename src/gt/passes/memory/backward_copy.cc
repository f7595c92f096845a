#include "gt/passes/memory/backward_copy.h"

#include <memory>

namespace gt {

Meta BackwardMeta(Meta meta) {
  meta.phase = Phase::kBackward;
  if (meta.chunk != nullptr) {
    auto chunk = std::make_shared<ChunkMeta>(*meta.chunk);
    chunk->backward = true;
    meta.chunk = std::move(chunk);
  }
  return meta;
}

Node* InsertBackwardCopy(Graph& graph, const Node& original, std::vector<Value*> operands,
                         Node* before, std::vector<std::string> names) {
  Graph::NodeSpec spec;
  spec.op = &original.op();
  spec.operands = std::move(operands);
  spec.args.assign(original.args().begin(), original.args().end());
  spec.meta = BackwardMeta(original.meta());
  Graph::Typed typed;
  typed.view_offsets.assign(original.view_offsets().begin(), original.view_offsets().end());
  for (int32_t i = 0; i < original.result_count(); ++i) {
    typed.results.push_back(original.result(i)->type());
  }
  typed.result_names = std::move(names);
  return graph.InsertTyped(std::move(spec), std::move(typed), before);
}

}  // namespace gt
