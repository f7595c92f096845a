#include "gt/ir/operator.h"

#include <charconv>

#include "gt/base/error.h"
#include "gt/ir/shape_env.h"

namespace gt {
namespace {

// A recursive-descent parser for the small language of libtorch's operator schemas. Schemas are
// written by us in ops/, so a mistake here is a bug of ours and reported as one.
class SchemaParser {
 public:
  explicit SchemaParser(std::string_view text) : text_(text) {}

  Schema Parse() {
    Schema schema;
    schema.text = std::string(text_);
    position_ = text_.find('(');
    Require(position_ != std::string_view::npos, "an opening parenthesis");
    Expect("(");
    while (!Accept(")")) {
      if (Accept("*,") || Accept("*, ")) continue;
      schema.args.push_back(ParseArg());
      ArgSpec& arg = schema.args.back();
      arg.may_be_undefined = arg.kind == ArgKind::kTensor && schema.args.size() > 1;
      Accept(",");
    }
    Expect("->");
    if (Accept("()")) return schema;
    bool tuple = Accept("(");
    do {
      schema.results.push_back(ParseResult());
    } while (tuple && Accept(","));
    if (tuple) Expect(")");
    return schema;
  }

 private:
  void SkipSpace() {
    while (position_ < text_.size() && text_[position_] == ' ') ++position_;
  }
  bool Accept(std::string_view token) {
    SkipSpace();
    if (!text_.substr(position_).starts_with(token)) return false;
    position_ += token.size();
    return true;
  }
  void Require(bool condition, std::string_view what) {
    GT_CHECK(condition, "schema '{}': expected {} at {}", text_, what, position_);
  }
  void Expect(std::string_view token) { Require(Accept(token), token); }

  std::string_view Word() {
    SkipSpace();
    size_t start = position_;
    while (position_ < text_.size() &&
           (isalnum(static_cast<unsigned char>(text_[position_])) || text_[position_] == '_')) {
      ++position_;
    }
    Require(position_ > start, "a word");
    return text_.substr(start, position_ - start);
  }

  // "(a)", "(a!)", "(a -> *)"
  void ParseAlias(char& alias, bool& written) {
    if (position_ >= text_.size() || text_[position_] != '(') return;
    ++position_;
    alias = text_[position_++];
    written = Accept("!");
    Accept("-> *");
    Expect(")");
  }

  ArgSpec ParseArg() {
    ArgSpec spec;
    std::string_view type = Word();
    spec.kind = KindOf(type);
    spec.symbolic = type == "SymInt";
    if (spec.kind == ArgKind::kTensor) ParseAlias(spec.alias, spec.written);
    bool question = Accept("?");
    if (position_ < text_.size() && text_[position_] == '[') {
      ++position_;
      if (text_[position_] != ']') {
        spec.fixed_length = text_[position_++] - '0';
      }
      Expect("]");
      spec.kind = ListOf(spec.kind);
      spec.optional_elements = question;
      if (spec.kind == ArgKind::kTensorList) ParseAlias(spec.alias, spec.written);
      question = Accept("?");
    }
    spec.optional = question;
    spec.name = std::string(Word());
    if (Accept("=")) spec.default_value = ParseDefault(spec);
    return spec;
  }

  ResultSpec ParseResult() {
    ResultSpec spec;
    std::string_view type = Word();
    Require(type == "Tensor" || type == "SymInt" || type == "int" || type == "Scalar",
            "Tensor or a number");
    spec.integer = type != "Tensor";
    bool written = false;
    ParseAlias(spec.alias, written);
    if (Accept("[]")) spec.list = true;
    SkipSpace();
    if (position_ < text_.size() && text_[position_] != ',' && text_[position_] != ')') Word();
    return spec;
  }

  Argument ParseDefault(const ArgSpec& spec) {
    SkipSpace();
    if (Accept("None")) return std::monostate();
    if (Accept("True")) return true;
    if (Accept("False")) return false;
    if (Accept("contiguous_format")) return MemoryFormat::kContiguous;
    if (Accept("preserve_format")) return MemoryFormat::kPreserve;
    if (Accept("Mean")) return Dim(1);  // the reduction enum
    if (Accept("\"")) {
      size_t end = text_.find('"', position_);
      Require(end != std::string_view::npos, "a closing quote");
      std::string value(text_.substr(position_, end - position_));
      position_ = end + 1;
      return value;
    }
    if (Accept("[")) {
      Shape values;
      std::vector<double> floats;
      std::vector<bool> bools;
      while (!Accept("]")) {
        if (Accept("True")) {
          bools.push_back(true);
        } else if (Accept("False")) {
          bools.push_back(false);
        } else {
          double number = Number();
          values.emplace_back(static_cast<int64_t>(number));
          floats.push_back(number);
        }
        Accept(",");
      }
      if (spec.kind == ArgKind::kFloatList) return floats;
      if (spec.kind == ArgKind::kBoolList) return bools;
      return values;
    }
    size_t start = position_;
    double number = Number();
    std::string_view literal = text_.substr(start, position_ - start);
    bool whole = literal.find_first_of(".e") == std::string_view::npos;
    if (spec.kind == ArgKind::kFloat || (spec.kind == ArgKind::kScalar && !whole)) return number;
    if (spec.kind == ArgKind::kIntList) {
      return Shape(static_cast<size_t>(std::max(spec.fixed_length, 1)),
                   Dim(static_cast<int64_t>(number)));
    }
    if (spec.kind == ArgKind::kDType) {
      Require(number == 4, "4, the only number that schemas write for a dtype");
      return DType::kInt64;  // libtorch prints the default of randint as its enumerator
    }
    return Dim(static_cast<int64_t>(number));
  }

  double Number() {
    SkipSpace();
    double value = 0;
    auto [end, error] =
        std::from_chars(text_.data() + position_, text_.data() + text_.size(), value);
    Require(error == std::errc(), "a number");
    position_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  ArgKind KindOf(std::string_view type) {
    static constexpr std::pair<std::string_view, ArgKind> kKinds[] = {
        {"Tensor", ArgKind::kTensor},
        {"int", ArgKind::kInt},
        {"SymInt", ArgKind::kInt},
        {"float", ArgKind::kFloat},
        {"bool", ArgKind::kBool},
        {"str", ArgKind::kString},
        {"Scalar", ArgKind::kScalar},
        {"ScalarType", ArgKind::kDType},
        {"Device", ArgKind::kDevice},
        {"Layout", ArgKind::kLayout},
        {"MemoryFormat", ArgKind::kMemoryFormat},
        {"Generator", ArgKind::kGenerator},
        {"Graph", ArgKind::kGraph},
    };
    for (const auto& [name, kind] : kKinds) {
      if (name == type) return kind;
    }
    Require(false, "a known argument type");
    return ArgKind::kTensor;
  }

  ArgKind ListOf(ArgKind kind) {
    switch (kind) {
      case ArgKind::kTensor:
        return ArgKind::kTensorList;
      case ArgKind::kInt:
        return ArgKind::kIntList;
      case ArgKind::kFloat:
        return ArgKind::kFloatList;
      case ArgKind::kBool:
        return ArgKind::kBoolList;
      default:
        Require(false, "a type that has lists");
        return kind;
    }
  }

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace

int Schema::Find(std::string_view arg_name) const {
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].name == arg_name) return static_cast<int>(i);
  }
  return -1;
}

Schema ParseSchema(std::string_view text) { return SchemaParser(text).Parse(); }

void RuleContext::Reject(const std::string& why) const {
  Fail(ErrorCode::kBadOperands, "{}: {}", op_.name.str(), why);
}

namespace {

[[noreturn]] void WrongKind(const RuleContext& context, int i, std::string_view expected) {
  context.Reject(
      fmt::format("argument '{}' must be {}", context.op().schema.args[i].name, expected));
}

template <typename T>
const T& Get(const RuleContext& context, int i, std::string_view expected) {
  const T* value = std::get_if<T>(&context.arg(i));
  if (value == nullptr) WrongKind(context, i, expected);
  return *value;
}

}  // namespace

bool RuleContext::IsNumber(int i) const {
  const Argument& value = args_[i];
  return std::holds_alternative<Dim>(value) || std::holds_alternative<double>(value) ||
         std::holds_alternative<bool>(value);
}

const TensorType& RuleContext::Tensor(int i) const {
  return *operands_[Get<OperandRef>(*this, i, "a tensor").index];
}

const TensorType* RuleContext::OptionalTensor(int i) const {
  return IsNone(i) ? nullptr : &Tensor(i);
}

std::vector<const TensorType*> RuleContext::Tensors(int i) const {
  std::vector<const TensorType*> types;
  for (int32_t index : Get<OperandList>(*this, i, "a list of tensors").indices) {
    types.push_back(index < 0 ? nullptr : operands_[index]);
  }
  return types;
}

const Dim& RuleContext::Int(int i) const { return Get<Dim>(*this, i, "an integer"); }

std::optional<Dim> RuleContext::OptionalInt(int i) const {
  return IsNone(i) ? std::nullopt : std::optional<Dim>(Int(i));
}

int64_t RuleContext::ConstInt(int i) const {
  std::optional<int64_t> value = Int(i).as_const();
  if (!value) WrongKind(*this, i, "a plain integer, not a symbolic one");
  return *value;
}

const Shape& RuleContext::Ints(int i) const { return Get<Shape>(*this, i, "a list of integers"); }

const Shape* RuleContext::OptionalInts(int i) const { return IsNone(i) ? nullptr : &Ints(i); }

std::vector<int64_t> RuleContext::ConstInts(int i) const {
  std::vector<int64_t> values;
  for (const Dim& dim : Ints(i)) {
    if (!dim.is_const()) WrongKind(*this, i, "a list of plain integers");
    values.push_back(*dim.as_const());
  }
  return values;
}

double RuleContext::Float(int i) const {
  if (const Dim* dim = std::get_if<Dim>(&args_[i]); dim != nullptr && dim->is_const()) {
    return static_cast<double>(*dim->as_const());
  }
  return Get<double>(*this, i, "a number");
}

bool RuleContext::Bool(int i) const { return Get<bool>(*this, i, "true or false"); }

std::optional<DType> RuleContext::OptionalDType(int i) const {
  return IsNone(i) ? std::nullopt : std::optional<DType>(Get<DType>(*this, i, "a dtype"));
}

std::optional<Device> RuleContext::OptionalDevice(int i) const {
  return IsNone(i) ? std::nullopt : std::optional<Device>(Get<Device>(*this, i, "a device"));
}

std::optional<MemoryFormat> RuleContext::OptionalMemoryFormat(int i) const {
  return IsNone(i) ? std::nullopt
                   : std::optional<MemoryFormat>(Get<MemoryFormat>(*this, i, "a memory format"));
}

const std::string& RuleContext::String(int i) const {
  return Get<std::string>(*this, i, "a string");
}

const std::vector<bool>& RuleContext::Bools(int i) const {
  return Get<std::vector<bool>>(*this, i, "a list of booleans");
}

const TensorType& CostContext::Tensor(int i) const {
  const auto* ref = std::get_if<OperandRef>(&args[i]);
  GT_CHECK(ref != nullptr, "argument {} is not a tensor", i);
  return *operands[ref->index];
}

}  // namespace gt
