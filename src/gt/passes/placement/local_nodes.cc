#include "gt/passes/placement/local_nodes.h"

#include <algorithm>
#include <numeric>
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
    typed = Infer(node, spec);
    for (int32_t i = 0; i < node.result_count(); ++i) {
      typed.result_names.push_back(node.result(i)->name());
    }
  }
  return make_.graph().InsertTyped(std::move(spec), std::move(typed));
}

// A view that the strides of a shard do not allow looks into a copy of it. Any other operator that refuses them
// gets copies whose dimensions are in memory in the order of the whole, for which it was asked how it can be
// sharded: a product that wants aligned rows may be cut along columns, but what was moved is row-major.
Graph::Typed LocalNodes::Infer(const Node& node, Graph::NodeSpec& spec) {
  try {
    return make_.graph().Infer(spec);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadOperands) throw;
  }
  if (spec.op->is_view()) {
    spec.operands[0] = make_.Contiguous(spec.operands[0]);
  } else {
    for (size_t i = 0; i < spec.operands.size(); ++i) {
      spec.operands[i] = InOrderOf(*node.operand(static_cast<int32_t>(i)), spec.operands[i]);
    }
  }
  return make_.graph().Infer(spec);
}

// The shard with its dimensions in memory as the whole has them.
Value* LocalNodes::InOrderOf(const Value& whole, Value* shard) {
  const TensorType& type = whole.type();
  if (!type.defined() || type.rank() < 2 || type.rank() != shard->type().rank()) return shard;
  const SymbolValues hints = make_.graph().shapes().Hints();
  std::vector<int64_t> order(type.strides.size());  // outermost first
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return type.strides[static_cast<size_t>(a)].Evaluate(hints) >
           type.strides[static_cast<size_t>(b)].Evaluate(hints);
  });
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return make_.Permute(make_.Contiguous(make_.Permute(shard, order)), back);
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
