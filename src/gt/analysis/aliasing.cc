#include "gt/analysis/aliasing.h"

#include <array>

namespace gt {
namespace {

bool IsOneOf(const Operator& op, std::span<const Name> names) {
  for (Name name : names) {
    if (op.name == name) return true;
  }
  return false;
}

}  // namespace

Aliasing AliasingOf(const Operator& op) {
  static const std::array<Name, 4> kMayAlias = {Name("aten::reshape"), Name("aten::contiguous"),
                                                Name("aten::to.dtype"), Name("aten::to.device")};
  static const std::array<Name, 2> kHidden = {Name("aten::_unsafe_view"),
                                              Name("aten::_reshape_alias")};
  if (IsOneOf(op, kMayAlias)) return Aliasing::kMayAlias;
  if (op.is_view() || op.collective == Collective::kWait || op.transfer == Transfer::kWait ||
      IsOneOf(op, kHidden)) {
    return Aliasing::kAlways;
  }
  return Aliasing::kNone;
}

Value* ViewedValue(const Value& value) {
  const Node* producer = value.producer();
  if (producer == nullptr || AliasingOf(producer->op()) == Aliasing::kNone) return nullptr;
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
