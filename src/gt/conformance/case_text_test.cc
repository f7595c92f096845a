#include "gt/conformance/case_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gt::conformance {
namespace {

std::string PrintShape(const ShapeEnv& env, const Shape& shape) {
  std::string text = "[";
  for (const Dim& dim : shape) text += (text.size() > 1 ? ", " : "") + env.Print(dim);
  return text + "]";
}

std::string PrintType(const ShapeEnv& env, const TensorType& type) {
  if (!type.defined()) return "undefined";
  return fmt::format("{}{} strides {}", DTypeName(type.dtype), PrintShape(env, type.sizes),
                     PrintShape(env, type.strides));
}

struct ArgumentPrinter {
  const ShapeEnv& env;
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(OperandRef ref) const { return fmt::format("%{}", ref.index); }
  std::string operator()(const OperandList& list) const {
    return fmt::format("[%{}]", fmt::join(list.indices, ", %"));
  }
  std::string operator()(const Dim& dim) const { return env.Print(dim); }
  std::string operator()(const Shape& shape) const { return PrintShape(env, shape); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(const std::string& value) const { return "\"" + value + "\""; }
  std::string operator()(DType dtype) const { return std::string(DTypeName(dtype)); }
  std::string operator()(Device device) const { return DeviceName(device); }
  std::string operator()(Layout) const { return "strided"; }
  std::string operator()(MemoryFormat format) const {
    return format == MemoryFormat::kContiguous ? "contiguous" : "preserve";
  }
  std::string operator()(const std::vector<double>& values) const {
    return fmt::format("[{}]", fmt::join(values, ", "));
  }
  std::string operator()(const std::vector<bool>& values) const {
    std::string text = "[";
    for (bool value : values) text += value ? "1" : "0";
    return text + "]";
  }
  std::string operator()(const GraphRef&) const { return "graph"; }
};

}  // namespace

std::string DescribeCase(const Case& c, const std::vector<TensorType>& results) {
  const ShapeEnv& env = c.env();
  std::string text = c.op().name.str() + "(";
  for (size_t i = 0; i < c.args().size(); ++i) {
    if (i > 0) text += ", ";
    text += c.op().schema.args[i].name + "=" + std::visit(ArgumentPrinter{env}, c.args()[i]);
  }
  text += ")";
  for (size_t i = 0; i < c.operands().size(); ++i) {
    const Case::Operand& operand = c.operands()[i];
    text += fmt::format("\n  operand {}: {} offset {} of {}", i, PrintType(env, operand.type),
                        env.Print(operand.offset), env.Print(operand.storage));
  }
  for (const Symbol& symbol : env.symbols()) {
    text += fmt::format("\n  symbol {}: hint {} range [{}, {}]", symbol.name, symbol.hint,
                        symbol.low, symbol.high);
  }
  for (const Guard& guard : env.guards()) {
    text += "\n  guard " + guard.predicate.ToString(env.Namer());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    text += fmt::format("\n  rule's result {}: {}", i, PrintType(env, results[i]));
  }
  return text;
}

}  // namespace gt::conformance
