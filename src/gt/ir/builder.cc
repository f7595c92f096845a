#include "gt/ir/builder.h"

#include "gt/base/error.h"

namespace gt {
namespace {

const Operator& KnownOperator(std::string_view name) {
  const Operator* op = FindOperator(name);
  GT_CHECK(op != nullptr, "no operator {}", name);
  return *op;
}

}  // namespace

NodeBuilder::NodeBuilder(Graph& graph, const Operator& op) : graph_(graph) {
  spec_.op = &op;
  spec_.args.reserve(op.schema.args.size());
  for (const ArgSpec& arg : op.schema.args) {
    spec_.args.push_back(arg.default_value.value_or(Argument()));
  }
  given_.resize(spec_.args.size());
}

NodeBuilder::NodeBuilder(Graph& graph, std::string_view op)
    : NodeBuilder(graph, KnownOperator(op)) {}

NodeBuilder& NodeBuilder::Set(std::string_view argument, Argument value) {
  spec_.args[At(argument)] = std::move(value);
  return *this;
}

NodeBuilder& NodeBuilder::Set(std::string_view argument, Value* value) {
  const size_t at = At(argument);
  spec_.args[at] = OperandRef{0};
  given_[at] = {value};
  return *this;
}

NodeBuilder& NodeBuilder::Set(std::string_view argument, std::vector<Value*> values) {
  const size_t at = At(argument);
  spec_.args[at] = OperandList{std::vector<int32_t>(values.size())};
  given_[at] = std::move(values);
  return *this;
}

Graph::NodeSpec NodeBuilder::Spec() {
  spec_.operands.clear();
  auto count = [&](Value* value) {
    if (value == nullptr) return -1;
    spec_.operands.push_back(value);
    return static_cast<int32_t>(spec_.operands.size() - 1);
  };
  for (size_t i = 0; i < spec_.args.size(); ++i) {
    if (auto* ref = std::get_if<OperandRef>(&spec_.args[i])) ref->index = count(given_[i][0]);
    if (auto* list = std::get_if<OperandList>(&spec_.args[i])) {
      for (size_t j = 0; j < given_[i].size(); ++j) list->indices[j] = count(given_[i][j]);
    }
  }
  return spec_;
}

size_t NodeBuilder::At(std::string_view argument) const {
  const int at = spec_.op->schema.Find(argument);
  GT_CHECK(at >= 0, "{} has no argument {}", spec_.op->name.str(), argument);
  return static_cast<size_t>(at);
}

Graph::NodeSpec SpecOf(const Node& node) {
  Graph::NodeSpec spec;
  spec.op = &node.op();
  spec.operands.reserve(static_cast<size_t>(node.operand_count()));
  for (int32_t i = 0; i < node.operand_count(); ++i) spec.operands.push_back(node.operand(i));
  spec.args.assign(node.args().begin(), node.args().end());
  spec.meta = node.meta();
  return spec;
}

Graph::Typed TypedOf(const Node& node) {
  Graph::Typed typed;
  typed.results.reserve(static_cast<size_t>(node.result_count()));
  for (int32_t i = 0; i < node.result_count(); ++i) {
    typed.results.push_back(node.result(i)->type());
  }
  typed.view_offsets.assign(node.view_offsets().begin(), node.view_offsets().end());
  return typed;
}

}  // namespace gt
