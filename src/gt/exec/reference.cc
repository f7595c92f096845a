#include "gt/exec/reference.h"

#include <ATen/core/grad_mode.h>

#include <unordered_map>

#include "gt/base/error.h"
#include "gt/exec/binding.h"
#include "gt/exec/transfer.h"
#include "gt/ir/text.h"
#include "gt/torch_bridge/convert.h"
#include "gt/torch_bridge/scope.h"

namespace gt {
namespace {

class ReferenceRun {
 public:
  ReferenceRun(const Graph& graph, std::span<const at::Tensor> inputs)
      : graph_(graph), symbols_(graph.shapes().symbols().size(), 0) {
    InputBinder(graph).Bind(inputs, symbols_);
    for (const auto& input : graph.inputs()) {
      tensors_[&input->value] = inputs[static_cast<size_t>(input->value.index())];
    }
    for (const Node* node : graph.nodes()) Run(*node);
  }

  // Of a nested graph, whose symbols are bound outside.
  ReferenceRun(const Graph& body, std::span<const at::Tensor> inputs, SymbolValues symbols)
      : graph_(body), symbols_(symbols.begin(), symbols.end()) {
    for (const auto& input : body.inputs()) {
      tensors_[&input->value] = inputs[static_cast<size_t>(input->value.index())];
    }
    for (const Node* node : body.nodes()) Run(*node);
  }

  std::vector<at::Tensor> Outputs() {
    std::vector<at::Tensor> outputs;
    for (const auto& output : graph_.outputs()) outputs.push_back(tensors_.at(output->value()));
    return outputs;
  }

 private:
  void Run(const Node& node) {
    if (node.op().reads_data) return ReadInts(node);
    if (const Graph* body = FusedBody(node)) return RunBody(node, *body);
    torch::jit::Stack stack;
    const std::vector<ArgSpec>& specs = node.op().schema.args;
    for (size_t i = 0; i < specs.size(); ++i)
      stack.push_back(BoxArgument(node, specs[i], node.args()[i]));
    try {
      ScopeGuard scope(ScopeOf(node));
      KernelOf(node).callBoxed(&stack);
    } catch (const c10::Error& error) {
      Fail(ErrorCode::kKernelFailed, "{} failed while running: {}", Print(node),
           error.what_without_backtrace());
    }
    int32_t next = 0;
    for (const c10::IValue& value : stack) {
      if (value.isTensor() || value.isNone()) {
        Store(node, next++, value.isNone() ? at::Tensor() : value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) Store(node, next++, tensor);
      }
    }
  }

  // The operators that the node stands for, one by one.
  void RunBody(const Node& node, const Graph& body) {
    for (const auto& input : body.inputs()) {
      tensors_[&input->value] = tensors_.at(node.operand(input->value.index()));
    }
    for (const Node* inner : body.nodes()) Run(*inner);
    for (int32_t i = 0; i < node.result_count(); ++i) {
      Store(node, i, tensors_.at(body.outputs()[static_cast<size_t>(i)]->value()));
    }
    for (const Node* inner : body.nodes()) {
      for (int32_t i = 0; i < inner->result_count(); ++i) tensors_.erase(inner->result(i));
    }
    for (const auto& input : body.inputs()) tensors_.erase(&input->value);
  }

  c10::IValue BoxArgument(const Node& node, const ArgSpec& spec, const Argument& argument) {
    if (const auto* ref = std::get_if<OperandRef>(&argument)) {
      return tensors_.at(node.operand(ref->index));
    }
    if (const auto* list = std::get_if<OperandList>(&argument)) {
      c10::List<at::Tensor> tensors;
      c10::List<std::optional<at::Tensor>> optional_tensors;
      for (int32_t index : list->indices) {
        std::optional<at::Tensor> tensor;
        if (index >= 0) tensor = tensors_.at(node.operand(index));
        optional_tensors.push_back(tensor);
        tensors.push_back(tensor.value_or(at::Tensor()));
      }
      return spec.optional_elements ? c10::IValue(optional_tensors) : c10::IValue(tensors);
    }
    c10::IValue value = ToIValue(spec, argument, symbols_);
    if (spec.kind == ArgKind::kTensor && value.isScalar()) return WrappedNumber(value.toScalar());
    return value;
  }

  void ReadInts(const Node& node) {
    AwaitTransfer(tensors_.at(node.operand(0)));
    at::Tensor numbers = tensors_.at(node.operand(0)).to(at::kCPU, at::kLong).contiguous();
    for (size_t i = 0; i < node.bound_symbols().size(); ++i) {
      symbols_[node.bound_symbols()[i]] = numbers.const_data_ptr<int64_t>()[i];
    }
  }

  void Store(const Node& node, int32_t index, at::Tensor tensor) {
    const Value* value = node.result(index);
    Check(node, *value, tensor);
    tensors_[value] = std::move(tensor);
  }

  void Check(const Node& node, const Value& value, const at::Tensor& tensor) {
    const TensorType& type = value.type();
    if (tensor.defined() != type.defined()) Mismatch(node, value, tensor);
    if (!tensor.defined()) return;
    if (!FitsType(tensor, type, symbols_)) Mismatch(node, value, tensor);
  }

  [[noreturn]] void Mismatch(const Node& node, const Value& value, const at::Tensor& tensor) {
    std::string got = tensor.defined() ? Print(TypeOf(tensor), graph_.shapes()) : "nothing";
    Fail(ErrorCode::kResultMismatch, "%{} was computed as {}, but the graph says {}: {}",
         value.name(), got, Print(value.type(), graph_.shapes()), Print(node));
  }

  const Graph& graph_;
  std::vector<int64_t> symbols_;
  std::unordered_map<const Value*, at::Tensor> tensors_;
};

}  // namespace

std::vector<at::Tensor> RunReference(const Graph& graph, std::span<const at::Tensor> inputs) {
  at::NoGradGuard no_gradients;
  return ReferenceRun(graph, inputs).Outputs();
}

std::vector<at::Tensor> RunNested(const Graph& body, std::span<const at::Tensor> inputs,
                                  SymbolValues symbols) {
  at::NoGradGuard no_gradients;
  return ReferenceRun(body, inputs, symbols).Outputs();
}

}  // namespace gt
