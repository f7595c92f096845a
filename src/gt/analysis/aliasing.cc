#include "gt/analysis/aliasing.h"

namespace gt {

Value* ViewedValue(const Value& value) {
  const Node* producer = value.producer();
  if (producer == nullptr || producer->op().aliasing == Aliasing::kNone) return nullptr;
  return producer->TensorArg(producer->op().is_view() ? producer->op().view_arg() : 0);
}

EscapingStorage::EscapingStorage(const Graph& graph) {
  for (const auto& output : graph.outputs()) {
    // Every value on the way counts, since an operator that may alias may also have allocated. A
    // value seen before has had its way up walked: shared chains are walked once.
    for (const Value* value = output->value(); value != nullptr; value = ViewedValue(*value)) {
      if (!values_.insert(value).second) break;
    }
  }
}

}  // namespace gt
