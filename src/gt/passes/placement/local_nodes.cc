#include "gt/passes/placement/local_nodes.h"

#include <utility>
#include <variant>

#include "gt/base/error.h"

namespace gt {

Node* LocalNodes::Emit(const Node& node, std::vector<Value*> operands, std::vector<Argument> args) {
  FitNestedGraphs(args, operands);
  Graph::NodeSpec spec{&node.op(), std::move(operands), std::move(args), make_.meta(), ""};
  Graph::Typed typed;
  if (!node.bound_symbols().empty()) {
    typed = TypedOf(node);
    typed.bound_symbols.assign(node.bound_symbols().begin(), node.bound_symbols().end());
  } else {
    typed = Infer(spec);
    for (int32_t i = 0; i < node.result_count(); ++i) {
      typed.result_names.push_back(node.result(i)->name());
    }
  }
  return make_.graph().InsertTyped(std::move(spec), std::move(typed));
}

// A view that the strides of a shard do not allow looks into a copy of it.
Graph::Typed LocalNodes::Infer(Graph::NodeSpec& spec) {
  try {
    return make_.graph().Infer(spec);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadOperands || !spec.op->is_view()) throw;
    spec.operands[0] = make_.Contiguous(spec.operands[0]);
    return make_.graph().Infer(spec);
  }
}

// Functions of attention get the types of the tensors that they look things up in.
void LocalNodes::FitNestedGraphs(std::vector<Argument>& args, const std::vector<Value*>& operands) {
  const OperandList* list = nullptr;
  for (Argument& arg : args) {
    if (const auto* operand_list = std::get_if<OperandList>(&arg)) list = operand_list;
    auto* nested = std::get_if<GraphRef>(&arg);
    if (nested == nullptr || *nested == nullptr || list == nullptr) continue;
    std::vector<const TensorType*> captures;
    for (int32_t index : list->indices) {
      captures.push_back(&operands[static_cast<size_t>(index)]->type());
    }
    *nested = Fitting(*nested, captures);
  }
}

GraphRef LocalNodes::Fitting(const GraphRef& nested,
                             const std::vector<const TensorType*>& captures) {
  auto fits = [&captures](const Graph& graph) {
    auto inputs = graph.inputs().last(captures.size());
    for (size_t i = 0; i < captures.size(); ++i) {
      if (inputs[i]->value.type() != *captures[i]) return false;
    }
    return true;
  };
  std::vector<GraphRef>& copies = nested_[nested.get()];
  for (const GraphRef& copy : copies) {
    if (fits(*copy)) return copy;  // layers share their functions
  }
  copies.push_back(nested->CloneInto(make_.graph(), captures));
  return copies.back();
}

}  // namespace gt
