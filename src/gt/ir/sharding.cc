#include "gt/ir/sharding.h"

#include <variant>

namespace gt {

int ShardingContext::OperandAt(int arg) const {
  const auto* operand = std::get_if<OperandRef>(&args_[static_cast<size_t>(arg)]);
  return operand == nullptr ? -1 : operand->index;
}

}  // namespace gt
