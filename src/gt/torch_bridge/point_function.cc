#include "gt/torch_bridge/point_function.h"

#include <ATen/core/List.h>

#include <unordered_map>

#include "gt/base/error.h"
#include "gt/torch_bridge/convert.h"

namespace gt {

PointFunction::PointFunction(const Graph& graph) : input_count_(graph.inputs().size()) {
  std::unordered_map<const Value*, size_t> numbers;
  for (const auto& input : graph.inputs()) numbers.emplace(&input->value, numbers.size());
  size_t next = input_count_;
  for (const Node* node : graph.nodes()) {
    if (node->result_count() != 1 || node->result()->type().rank() != 0) {
      Fail(ErrorCode::kUnsupportedCapture,
           "{} in graph @{} does not give a single number; score and mask functions may use "
           "elementwise operators and look up single elements of captured tensors",
           node->op().name.str(), graph.name());
    }
    Call call{HandleOf(node->op()), {}, {}};
    const std::vector<ArgSpec>& specs = node->op().schema.args;
    call.arguments.resize(specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      const Argument& argument = node->args()[i];
      if (const auto* ref = std::get_if<OperandRef>(&argument)) {
        call.slots.push_back({i, -1, numbers.at(node->operand(ref->index))});
      } else if (const auto* list = std::get_if<OperandList>(&argument)) {
        c10::List<std::optional<at::Tensor>> empty;
        empty.resize(list->indices.size());
        call.arguments[i] = empty;
        for (size_t element = 0; element < list->indices.size(); ++element) {
          if (list->indices[element] < 0) continue;
          call.slots.push_back({i, static_cast<int64_t>(element),
                                numbers.at(node->operand(list->indices[element]))});
        }
      } else if (specs[i].kind == ArgKind::kTensor &&
                 !std::holds_alternative<std::monostate>(argument)) {
        call.arguments[i] = WrappedNumber(ToIValue(specs[i], argument, {}).toScalar());
      } else {
        call.arguments[i] = ToIValue(specs[i], argument, {});
      }
    }
    numbers.emplace(node->result(), next++);
    calls_.push_back(std::move(call));
  }
  result_ = numbers.at(graph.outputs()[0]->value());
}

at::Tensor PointFunction::operator()(std::span<const at::Tensor> inputs) const {
  GT_CHECK(inputs.size() == input_count_, "{} inputs for a function of {}", inputs.size(),
           input_count_);
  std::vector<at::Tensor> values(inputs.begin(), inputs.end());
  values.reserve(input_count_ + calls_.size());
  torch::jit::Stack stack;
  for (const Call& call : calls_) {
    stack.assign(call.arguments.begin(), call.arguments.end());
    for (const Call::Slot& slot : call.slots) {
      c10::IValue& argument = stack[slot.argument];
      if (slot.element < 0) {
        argument = values[slot.source];
        continue;
      }
      c10::List<std::optional<at::Tensor>> list = argument.toOptionalTensorList();
      if (argument.is(call.arguments[slot.argument])) {
        list = list.copy();  // the one in `arguments` is shared by all runs
        argument = list;
      }
      list.set(static_cast<size_t>(slot.element), values[slot.source]);
    }
    call.handle.callBoxed(&stack);
    values.push_back(std::move(stack.back()).toTensor());
    stack.clear();
  }
  return values[result_];
}

}  // namespace gt
