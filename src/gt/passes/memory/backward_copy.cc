#include "gt/passes/memory/backward_copy.h"

#include <memory>

#include "gt/ir/builder.h"

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
  Graph::NodeSpec spec = SpecOf(original);
  spec.operands = std::move(operands);
  spec.meta = BackwardMeta(original.meta());
  Graph::Typed typed = TypedOf(original);
  typed.result_names = std::move(names);
  return graph.InsertTyped(std::move(spec), std::move(typed), before);
}

}  // namespace gt
