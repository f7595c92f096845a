#include "gt/ir/argument_parser.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "gt/base/text.h"

namespace gt {

Value* ExpectValue(TokenReader& in, const Graph& graph) {
  if (in.token().kind != Token::Kind::kValue) in.FailExpected("a value, such as %x");
  const size_t offset = in.token().offset;
  if (in.token().quoted) {
    Value* value = graph.FindValue(in.ExpectName(Token::Kind::kValue, "a value"));
    if (value == nullptr) {
      in.FailAt(ErrorCode::kGtirUndefinedValue, offset, "this value is not defined");
    }
    return value;
  }
  Value* value = graph.FindValue(in.token().text);
  if (value == nullptr) {
    in.FailHere(ErrorCode::kGtirUndefinedValue,
                fmt::format("%{} is not defined: neither an input nor an earlier node of graph "
                            "@{} has that name",
                            in.token().text.substr(0, 64), graph.name()));
  }
  in.Advance();
  return value;
}

void ArgumentParser::Parse(Graph::NodeSpec& spec) {
  const Operator& op = *spec.op;
  std::vector<bool> given(op.schema.args.size());
  operands_.clear();
  spec.args.resize(op.schema.args.size());
  ParseGiven(op, spec.args, given);
  FillDefaults(op, given, spec.args);
  // Operands are numbered in the order of the schema, whatever the order of the text.
  spec.operands.reserve(operands_.size());
  auto renumber = [&](int32_t& index) {
    if (index < 0) return;
    spec.operands.push_back(operands_[static_cast<size_t>(index)]);
    index = static_cast<int32_t>(spec.operands.size() - 1);
  };
  for (Argument& arg : spec.args) {
    if (auto* ref = std::get_if<OperandRef>(&arg)) renumber(ref->index);
    if (auto* list = std::get_if<OperandList>(&arg)) {
      for (int32_t& index : list->indices) renumber(index);
    }
  }
}

void ArgumentParser::ParseGiven(const Operator& op, std::vector<Argument>& args,
                                std::vector<bool>& given) {
  if (!in_.token().Is('(')) {
    in_.FailExpected(fmt::format("'(' and the arguments of {}", op.name.str()));
  }
  in_.Advance();
  if (in_.Accept(')')) return;
  int next = 0;
  bool named = false;
  do {
    if (in_.token().kind == Kind::kIdentifier && in_.PeekCharacter() == '=') {
      named = true;
      next = FindArgument(op, next);
      if (given[static_cast<size_t>(next)]) {
        in_.FailHere(ErrorCode::kGtirBadArgument,
                     fmt::format("argument '{}' is given twice", in_.token().text));
      }
      in_.Advance();
      in_.Expect('=');
    } else if (named) {
      in_.FailExpected("an argument with its name, such as dim = 0, behind other named ones");
    } else if (next == static_cast<int>(args.size())) {
      in_.FailHere(ErrorCode::kGtirBadArgument, fmt::format("{} takes only {} arguments: {}",
                                                            op.name.str(), next, op.schema.text));
    }
    const auto at = static_cast<size_t>(next++);
    given[at] = true;
    args[at] = ParseArgument(op.schema.args[at]);
  } while (in_.Accept(','));
  if (!in_.token().Is(')')) in_.FailExpected("',' or ')' behind an argument");
  in_.Advance();
}

// Position of the named argument at the current token. The printer writes arguments in order, so
// the search starts at the next one.
int ArgumentParser::FindArgument(const Operator& op, int next) const {
  const std::vector<ArgSpec>& specs = op.schema.args;
  const int count = static_cast<int>(specs.size());
  for (int i = 0; i < count; ++i) {
    const int at = (next + i) % count;
    if (specs[static_cast<size_t>(at)].name == in_.token().text) return at;
  }
  std::vector<std::string> names;
  for (const ArgSpec& spec : specs) names.push_back(spec.name);
  const std::string_view name = in_.token().text;
  in_.FailHere(ErrorCode::kGtirBadArgument,
               fmt::format("{} has no argument '{}'{}; its schema is {}", op.name.str(),
                           name.substr(0, 64), DidYouMean(name, names), op.schema.text));
}

void ArgumentParser::FillDefaults(const Operator& op, const std::vector<bool>& given,
                                  std::vector<Argument>& args) const {
  for (size_t i = 0; i < args.size(); ++i) {
    if (given[i]) continue;
    const ArgSpec& spec = op.schema.args[i];
    if (!spec.default_value) {
      in_.FailAt(
          ErrorCode::kGtirBadArgument, in_.previous_end() - 1,
          fmt::format(
              "argument '{}' of {} is missing{}", spec.name, op.name.str(),
              spec.optional ? fmt::format("; to leave it out, write {} = none", spec.name) : ""));
    }
    args[i] = *spec.default_value;
  }
}

OperandRef ArgumentParser::ParseOperand() {
  operands_.push_back(ExpectValue(in_, graph_));
  return OperandRef{static_cast<int32_t>(operands_.size() - 1)};
}

Argument ArgumentParser::ParseNumber() {
  if (in_.token().IsWord("true") || in_.token().IsWord("false")) return in_.ExpectBool();
  Lexer after_sign = in_.place();
  if (in_.token().Is('-')) after_sign.Advance();
  const Token& number = after_sign.token();
  if (number.kind == Kind::kFloat || number.IsWord("inf") || number.IsWord("nan")) {
    return in_.ExpectFloat();
  }
  return sizes_.Parse();
}

Argument ArgumentParser::ParseTensor(const ArgSpec& spec) {
  const Token& token = in_.token();
  if (token.kind == Kind::kValue) return ParseOperand();
  if (token.kind == Kind::kString || token.Is('[')) {
    in_.FailExpected(fmt::format("a value such as %x, or a number, for argument '{}'", spec.name));
  }
  if (token.kind == Kind::kIdentifier && !sizes_.IsDeclared(token.text) &&
      graph_.FindValue(token.text) != nullptr) {
    in_.FailExpected(fmt::format("%{} for argument '{}'", token.text, spec.name));
  }
  return ParseNumber();
}

Argument ArgumentParser::ParseArgument(const ArgSpec& spec) {
  const Token& token = in_.token();
  if (token.IsWord("none")) {
    if (!spec.AllowsNone()) {
      in_.FailHere(ErrorCode::kGtirBadArgument,
                   fmt::format("argument '{}' cannot be none", spec.name));
    }
    in_.Advance();
    return std::monostate();
  }
  const auto expected = [&](std::string_view what) {
    return fmt::format("{} for argument '{}'", what, spec.name);
  };
  const bool is_bool = token.IsWord("true") || token.IsWord("false");
  switch (spec.kind) {
    case ArgKind::kTensor:
      return ParseTensor(spec);
    case ArgKind::kTensorList:
      if (!token.Is('[')) in_.FailExpected(expected("a list of values, such as [%x, %y],"));
      return OperandList{in_.ExpectList<int32_t>([&] {
        if (spec.optional_elements && in_.AcceptWord("none")) return -1;
        return ParseOperand().index;
      })};
    case ArgKind::kInt:
      if (token.kind == Kind::kValue || token.Is('[') || token.kind == Kind::kFloat) {
        in_.FailExpected(expected("an integer"));
      }
      return sizes_.Parse();
    case ArgKind::kIntList:
      if (token.Is('[')) return sizes_.ParseList('[', ']');
      if (spec.fixed_length > 0 && token.kind != Kind::kValue) {
        return Shape(static_cast<size_t>(spec.fixed_length), sizes_.Parse());
      }
      in_.FailExpected(expected("a list of integers, such as [s0, 16],"));
    case ArgKind::kFloat:
    case ArgKind::kScalar:
      if (token.kind == Kind::kValue || token.Is('[') ||
          (spec.kind == ArgKind::kFloat && is_bool)) {
        in_.FailExpected(expected("a number"));
      }
      return ParseNumber();
    case ArgKind::kFloatList:
      if (!token.Is('[')) in_.FailExpected(expected("a list of numbers"));
      return in_.ExpectList<double>([&] { return in_.ExpectFloat(); });
    case ArgKind::kBool:
      if (!is_bool) in_.FailExpected(expected("true or false"));
      return in_.ExpectBool();
    case ArgKind::kBoolList:
      if (!token.Is('[')) in_.FailExpected(expected("a list such as [true, false]"));
      return in_.ExpectList<bool>([&] { return in_.ExpectBool(); });
    case ArgKind::kString:
      return in_.ExpectString(expected("a string in quotes"));
    case ArgKind::kDType: {
      const auto dtype = token.kind == Kind::kIdentifier ? ParseDType(token.text) : std::nullopt;
      if (!dtype) in_.FailExpected(expected("a dtype, such as f32 or bf16,"));
      in_.Advance();
      return *dtype;
    }
    case ArgKind::kDevice: {
      const size_t offset = token.offset;
      const auto device =
          ParseDevice(in_.ExpectString(expected("a device in quotes, such as \"cpu\",")));
      if (!device) in_.FailAt(ErrorCode::kGtirSyntax, offset, "unknown device");
      return *device;
    }
    case ArgKind::kLayout:
      if (!in_.AcceptWord("strided")) in_.FailExpected(expected("strided"));
      return Layout::kStrided;
    case ArgKind::kMemoryFormat:
      if (in_.AcceptWord("preserve")) return MemoryFormat::kPreserve;
      if (!in_.AcceptWord("contiguous")) in_.FailExpected(expected("contiguous or preserve"));
      return MemoryFormat::kContiguous;
    case ArgKind::kGenerator:
      in_.FailExpected(expected("none"));
    case ArgKind::kGraph:
      if (!token.IsWord("graph")) in_.FailExpected(expected("a nested graph"));
      return nested_(graph_);
  }
  in_.FailExpected(expected("an argument"));
}

}  // namespace gt
