#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/read_file.h"
#include "gt/base/text.h"
#include "gt/ir/lexer.h"
#include "gt/ir/text.h"

namespace gt {
namespace {

// Deeper than any program nests (FlexAttention nests once), shallow enough for the stack.
constexpr int kMaxGraphDepth = 16;
constexpr int kMaxExpressionDepth = 64;
constexpr uint64_t kMinimumMagnitude = uint64_t{1} << 63;  // of INT64_MIN

// Words that mean something where an expression may stand.
constexpr std::string_view kReserved[] = {"none", "true",     "false", "inf",
                                          "nan",  "floordiv", "min",   "max"};

// "aten::ad.Tensor" means "aten::add.Tensor", "aten::add" and "add" do too.
const Operator* NearestOperator(std::string_view name) {
  constexpr size_t kLongestName = 128;  // the edit distance is quadratic
  if (name.size() > kLongestName) return nullptr;
  const bool qualified = name.find("::") != std::string_view::npos;
  const Operator* nearest = nullptr;
  size_t best = std::max<size_t>(2, name.size() / 4) + 1;
  for (const Operator* op : AllOperators()) {
    std::string_view candidate = op->name.str();
    if (!qualified) candidate.remove_prefix(candidate.find("::") + 2);
    size_t distance = EditDistance(name, candidate);
    if (distance > 1 && candidate.substr(0, candidate.find('.')) == name) distance = 1;
    if (distance < best) {
      best = distance;
      nearest = op;
    }
  }
  return nearest;
}

// Recursive descent, one function per phrase of the grammar (see ir/text.h). Everything that the
// text could get wrong is checked here, before the graph's own functions see it, so that the
// message can point at the place.
class Parser {
 public:
  explicit Parser(const SourceText& source) : source_(source), lexer_(source) {}

  std::unique_ptr<Graph> ParseWhole() {
    try {
      std::unique_ptr<Graph> graph = ParseGraph(nullptr);
      if (token().kind != Token::Kind::kEnd) FailExpected("the end of the text");
      return graph;
    } catch (const TextError&) {
      throw;
    } catch (
        const Error& error) {  // from arithmetic on sizes: it knows what is wrong, but not where
      source_.Fail(error.code(), anchor_, error.message());
    }
  }

 private:
  using Kind = Token::Kind;

  // ---- tokens ----
  const Token& token() const { return lexer_.token(); }
  void Advance() {
    previous_end_ = EndOf(token());
    lexer_.Advance();
  }
  // Where a token that needs no quotes ends.
  static size_t EndOf(const Token& token) { return token.offset + token.text.size(); }
  bool Accept(char c) {
    if (!token().Is(c)) return false;
    Advance();
    return true;
  }
  bool AcceptWord(std::string_view word) {
    if (!token().IsWord(word)) return false;
    Advance();
    return true;
  }
  void Expect(char c) {
    if (!Accept(c)) FailExpected(fmt::format("'{}'", c));
  }
  void ExpectWord(std::string_view word) {
    if (!AcceptWord(word)) FailExpected(fmt::format("'{}'", word));
  }
  std::string ExpectString(std::string_view what);
  std::string ExpectName(Kind kind, std::string_view what);
  int64_t ExpectInteger(std::string_view what);
  Name ExpectInterned(std::string_view what);
  template <typename Enum>
  Enum ExpectEnum(std::string_view what, Enum last);

  // ---- errors ----
  [[noreturn]] void FailAt(ErrorCode code, size_t offset, std::string_view message) const {
    source_.Fail(code, offset, message);
  }
  [[noreturn]] void FailHere(ErrorCode code, std::string_view message) const {
    FailAt(code, token().offset, message);
  }
  [[noreturn]] void FailExpected(std::string_view what) const;

  // ---- numbers and sizes ----
  int64_t IntegerFrom(uint64_t magnitude, bool negative, size_t offset) const;
  uint64_t ExpectMagnitude();
  double ExpectFloat();
  Dim ParseDim();
  Dim ParseSum();
  Dim ParseProduct(bool subtracted);
  Dim ParseFactor();
  Dim ParseSymbol();
  Shape ParseDims(char open, char close);
  SymbolId ExpectSymbol();

  // ---- graphs ----
  std::unique_ptr<Graph> ParseGraph(const Graph* outer);
  void SkipInputs();
  void ParseInputs();
  void ParseSymbols();
  void ParseFacts();
  void ParseGuards();
  void EndEntry(std::string_view what);
  void ParseNode();
  void ParseOutputs();
  TensorType ParseType();
  Device ParseDeviceSuffix();

  // ---- nodes ----
  const Operator& ParseOperator();
  void ParseArguments(Graph::NodeSpec& spec);
  int FindArgument(const Operator& op, int next) const;
  Argument ParseArgument(const ArgSpec& spec, std::vector<Value*>& operands);
  Argument ParseNumber();
  OperandRef ParseOperand(std::vector<Value*>& operands);
  template <typename Element, typename Parse>
  std::vector<Element> ParseList(Parse&& parse);
  bool ParseBool();
  void ParseResults(const Operator& op, size_t statement, Graph::Typed& typed);
  void CheckResultNames(const std::vector<std::string>& names,
                        const std::vector<size_t>& offsets) const;
  Meta ParseMeta();
  std::shared_ptr<const ChunkMeta> ParseChunk();
  void ClaimKey(uint32_t& seen, int bit, std::string_view key) const;

  const SourceText& source_;
  Lexer lexer_;
  size_t previous_end_ = 0;
  size_t anchor_ = 0;  // where to point when arithmetic fails
  int graph_depth_ = 0;
  int expression_depth_ = 0;
  bool lines_end_expressions_ = false;  // in blocks whose entries are separated by lines

  Graph* graph_ = nullptr;      // the one being read
  ShapeEnv* shapes_ = nullptr;  // shared by all of them
  std::unordered_map<std::string_view, SymbolId> symbol_ids_;
  std::vector<Dim> symbol_dims_;  // made once: equal Dims then share one expression
  // Keyed by the text of tokens; the same few hundred names occur over and over.
  std::unordered_map<std::string_view, Name> names_;
  std::unordered_map<std::string_view, const Operator*> operators_;
};

void Parser::FailExpected(std::string_view what) const {
  std::string found;
  const Token& token = lexer_.token();
  if (token.kind == Kind::kEnd) {
    found = "the end of the text";
  } else {
    constexpr size_t kLongest = 40;
    found = token.kind == Kind::kValue ? "%" : token.kind == Kind::kGlobal ? "@" : "";
    found += token.kind == Kind::kString ? "a string" : token.text.substr(0, kLongest);
    if (token.kind != Kind::kString) found = fmt::format("'{}'", found);
  }
  FailHere(ErrorCode::kGtirSyntax, fmt::format("expected {}, found {}", what, found));
}

std::string Parser::ExpectString(std::string_view what) {
  if (token().kind != Kind::kString) FailExpected(what);
  std::string text = Unquoted(token().text, token().offset + 1, source_);
  Advance();
  return text;
}

std::string Parser::ExpectName(Kind kind, std::string_view what) {
  if (token().kind != kind) FailExpected(what);
  std::string name = token().quoted ? Unquoted(token().text, token().offset + 2, source_)
                                    : std::string(token().text);
  if (name.empty()) FailHere(ErrorCode::kGtirSyntax, "a name cannot be empty");
  Advance();
  return name;
}

Name Parser::ExpectInterned(std::string_view what) {
  if (token().kind != Kind::kString) FailExpected(what);
  auto [found, fresh] = names_.try_emplace(token().text);
  if (fresh) found->second = Name(Unquoted(token().text, token().offset + 1, source_));
  Advance();
  return found->second;
}

template <typename Enum>
Enum Parser::ExpectEnum(std::string_view what, Enum last) {
  const int count = static_cast<int>(last) + 1;
  for (int i = 0; i < count && token().kind == Kind::kIdentifier; ++i) {
    if (AcceptWord(Spelling(static_cast<Enum>(i)))) return static_cast<Enum>(i);
  }
  std::string choices;
  for (int i = 0; i < count; ++i) {
    choices += i == 0 ? "" : i + 1 == count ? " or " : ", ";
    choices += Spelling(static_cast<Enum>(i));
  }
  FailExpected(fmt::format("{} ({})", what, choices));
}

int64_t Parser::IntegerFrom(uint64_t magnitude, bool negative, size_t offset) const {
  if (magnitude > kMinimumMagnitude - (negative ? 0 : 1)) {
    FailAt(ErrorCode::kGtirNumberRange, offset, "this integer does not fit into 64 bits");
  }
  return static_cast<int64_t>(negative ? -magnitude : magnitude);
}

uint64_t Parser::ExpectMagnitude() {
  const std::string_view text = token().text;
  uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), magnitude);
  if (error != std::errc() || magnitude > kMinimumMagnitude) {
    FailHere(ErrorCode::kGtirNumberRange, "this integer does not fit into 64 bits");
  }
  Advance();
  return magnitude;
}

int64_t Parser::ExpectInteger(std::string_view what) {
  const size_t offset = token().offset;
  const bool negative = Accept('-');
  if (token().kind != Kind::kInteger) FailExpected(what);
  return IntegerFrom(ExpectMagnitude(), negative, offset);
}

double Parser::ExpectFloat() {
  double sign = 1;
  const std::string_view what = "a number";
  if (Accept('-')) {
    sign = -1;
    if (token().IsWord("nan")) FailExpected(what);
  }
  if (AcceptWord("inf")) return sign * std::numeric_limits<double>::infinity();
  if (AcceptWord("nan")) return std::numeric_limits<double>::quiet_NaN();
  if (token().kind != Kind::kFloat && token().kind != Kind::kInteger) FailExpected(what);
  const std::string_view text = token().text;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) {
    FailHere(ErrorCode::kGtirNumberRange, "this number does not fit into a double");
  }
  Advance();
  return sign * value;
}

// Almost every size is one number or one symbol.
Dim Parser::ParseDim() {
  anchor_ = token().offset;
  const char next = lexer_.PeekCharacter();
  if (next == ',' || next == ']' || next == ')' || next == '}') {
    if (token().kind == Kind::kInteger) {
      const size_t offset = token().offset;
      return IntegerFrom(ExpectMagnitude(), false, offset);
    }
    if (token().kind == Kind::kIdentifier) return ParseSymbol();
  }
  return ParseSum();
}

Dim Parser::ParseSum() {
  if (++expression_depth_ > kMaxExpressionDepth) {
    FailHere(ErrorCode::kGtirTooDeep,
             fmt::format("this expression is nested more than {} deep", kMaxExpressionDepth));
  }
  std::vector<Dim> terms;
  terms.push_back(ParseProduct(/*subtracted=*/false));
  while ((token().Is('+') || token().Is('-')) && !(lines_end_expressions_ && token().starts_line)) {
    const bool subtracted = token().Is('-');
    Advance();
    terms.push_back(ParseProduct(subtracted));
  }
  --expression_depth_;
  // In pairs, because adding a term to a long sum copies the sum.
  while (terms.size() > 1) {
    const size_t pairs = terms.size() / 2;
    for (size_t i = 0; i < pairs; ++i) terms[i] = terms[2 * i] + terms[2 * i + 1];
    if (terms.size() % 2 == 1) terms[pairs] = terms.back();
    terms.resize(terms.size() - pairs);
  }
  return terms[0];
}

// As in Python: * // % bind alike, from the left, and a leading minus binds closer than // and %,
// unlike the minus between two terms. Signs are carried along as long as possible, because the
// number behind one may fit only when negative.
Dim Parser::ParseProduct(bool subtracted) {
  bool negative = false;
  auto accept_signs = [&] {
    while (Accept('-')) negative = !negative;
  };
  auto next_factor = [&]() -> Dim {
    if (token().kind != Kind::kInteger) return ParseFactor();
    const size_t offset = token().offset;
    const uint64_t magnitude = ExpectMagnitude();
    bool takes_sign = false;
    if (magnitude == kMinimumMagnitude)
      takes_sign = std::exchange(negative ? negative : subtracted, false);
    return IntegerFrom(magnitude, takes_sign, offset);
  };
  accept_signs();
  Dim product = next_factor();
  while (!(lines_end_expressions_ && token().starts_line)) {
    if (Accept('*')) {
      accept_signs();
      product = product * next_factor();
      continue;
    }
    const bool divides = token().Is("//");
    const bool remainder = token().kind == Kind::kValue || token().Is('%');
    if (!divides && !remainder) break;
    if (std::exchange(negative, false)) product = -product;
    if (remainder) {
      lexer_.TakePercentAsOperator();
    } else {
      Advance();
    }
    accept_signs();
    Dim divisor = ParseFactor();
    if (std::exchange(negative, false)) divisor = -divisor;
    product = divides ? FloorDiv(product, divisor) : Mod(product, divisor);
  }
  return negative != subtracted ? -product : product;
}

Dim Parser::ParseFactor() {
  if (token().kind == Kind::kInteger) {
    const size_t offset = token().offset;
    return IntegerFrom(ExpectMagnitude(), false, offset);
  }
  if (Accept('(')) {
    Dim inner = ParseSum();
    Expect(')');
    return inner;
  }
  if (token().kind == Kind::kIdentifier && lexer_.PeekCharacter() == '(') {
    for (const auto& [name, apply] :
         {std::pair<std::string_view, Dim (*)(const Dim&, const Dim&)>{"floordiv", FloorDiv},
          {"min", Min},
          {"max", Max}}) {
      if (!AcceptWord(name)) continue;
      Expect('(');
      Dim a = ParseSum();
      Expect(',');
      Dim b = ParseSum();
      Expect(')');
      return apply(a, b);
    }
    FailExpected("floordiv, min or max");
  }
  return ParseSymbol();
}

Dim Parser::ParseSymbol() { return symbol_dims_[ExpectSymbol()]; }

SymbolId Parser::ExpectSymbol() {
  if (token().kind != Kind::kIdentifier) FailExpected("an integer or a symbol");
  const auto found = symbol_ids_.find(token().text);
  if (found == symbol_ids_.end()) {
    if (std::find(std::begin(kReserved), std::end(kReserved), token().text) !=
        std::end(kReserved)) {
      FailExpected("an integer or a symbol");
    }
    std::vector<std::string> declared;
    for (const auto& [name, id] : symbol_ids_) declared.emplace_back(name);
    std::sort(declared.begin(), declared.end());
    FailHere(
        ErrorCode::kUnboundSymbol,
        fmt::format("unbound symbol '{}': the graph's `symbols {{ ... }}` does not declare it{}",
                    token().text.substr(0, 64), DidYouMean(token().text, declared)));
  }
  Advance();
  return found->second;
}

Shape Parser::ParseDims(char open, char close) {
  Shape dims;
  Expect(open);
  if (Accept(close)) return dims;
  do {
    dims.push_back(ParseDim());
  } while (Accept(','));
  if (!Accept(close)) FailExpected(fmt::format("an operator, ',' or '{}'", close));
  return dims;
}

std::unique_ptr<Graph> Parser::ParseGraph(const Graph* outer) {
  if (++graph_depth_ > kMaxGraphDepth) {
    FailHere(ErrorCode::kGtirTooDeep,
             fmt::format("graphs are nested more than {} deep here", kMaxGraphDepth));
  }
  ExpectWord("graph");
  auto graph =
      std::make_unique<Graph>(ExpectName(Kind::kGlobal, "the graph's name, such as @step"));
  Graph* const graph_around = std::exchange(graph_, graph.get());
  if (outer != nullptr) {
    graph->ShareShapes(*outer);
    ParseInputs();
    if (token().IsWord("symbols") || token().IsWord("facts") || token().IsWord("guards")) {
      FailHere(ErrorCode::kGtirSyntax,
               "a nested graph shares the symbols of the graph around it; declare them there");
    }
  } else {
    shapes_ = &graph->shapes();
    constexpr size_t kCharactersPerValue = 160;
    graph->ReserveNames(source_.text().size() / kCharactersPerValue);
    // Inputs stand before the block that declares their symbols, so that block is read first.
    const Lexer inputs = lexer_;
    SkipInputs();
    if (AcceptWord("symbols")) ParseSymbols();
    const Lexer body = lexer_;
    lexer_ = inputs;
    ParseInputs();
    lexer_ = body;
    if (AcceptWord("facts")) ParseFacts();
    if (AcceptWord("guards")) ParseGuards();
  }
  while (!AcceptWord("return")) ParseNode();
  ParseOutputs();
  Expect('}');
  graph_ = graph_around;
  --graph_depth_;
  return graph;
}

// Up to the first token of the body.
void Parser::SkipInputs() {
  if (!token().Is('(')) FailExpected("'(' and the inputs");
  int depth = 0;
  do {
    if (token().Is('(')) ++depth;
    if (token().Is(')')) --depth;
    if (token().kind == Kind::kEnd) return;  // reading the inputs will find out what is wrong
    Advance();
  } while (depth > 0);
  Accept('{');
}

void Parser::ParseInputs() {
  Expect('(');
  if (!Accept(')')) {
    do {
      const size_t offset = token().offset;
      std::string value_name = ExpectName(Kind::kValue, "an input, such as %x: input \"x\" f32[2]");
      if (graph_->FindValue(value_name) != nullptr) {
        FailAt(ErrorCode::kDuplicateValue, offset,
               fmt::format("a second input is called %{}", value_name));
      }
      Expect(':');
      const auto role = ExpectEnum("the role of the input", InputRole::kConstant);
      std::string name = ExpectString("the name of the input, in quotes");
      graph_->AddInput(role, std::move(name), ParseType(), std::move(value_name));
    } while (Accept(','));
    if (!Accept(')')) FailExpected("',' or ')' behind an input");
  }
  Expect('{');
}

// Entries of a block stand on lines of their own or are separated by semicolons.
void Parser::EndEntry(std::string_view what) {
  if (Accept(';') || token().Is('}') || token().starts_line) return;
  FailExpected(fmt::format("';', a new line or '}}' behind a {}", what));
}

void Parser::ParseSymbols() {
  Expect('{');
  while (!Accept('}')) {
    anchor_ = token().offset;
    const std::string_view name = token().text;
    if (token().kind != Kind::kIdentifier) FailExpected("a symbol, such as s0: input, hint 4");
    if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
      FailHere(ErrorCode::kBadSymbol, fmt::format("'{}' cannot be the name of a symbol", name));
    }
    Advance();
    Expect(':');
    Symbol symbol;
    symbol.name = std::string(name);
    if (AcceptWord("data")) {
      symbol.kind = Symbol::Kind::kData;
    } else if (!AcceptWord("input")) {
      FailExpected("'input' or 'data'");
    }
    symbol.low = symbol.kind == Symbol::Kind::kInput ? 2 : 0;
    Expect(',');
    ExpectWord("hint");
    symbol.hint = ExpectInteger("the hint, an integer");
    if (Accept(',')) {
      ExpectWord("range");
      Expect('[');
      symbol.low = ExpectInteger("the lower bound, an integer");
      Expect(',');
      if (!AcceptWord("inf")) symbol.high = ExpectInteger("the upper bound, an integer or inf");
      Expect(']');
    }
    const SymbolId id = shapes_->AddSymbol(std::move(symbol));
    symbol_ids_.emplace(name, id);
    symbol_dims_.push_back(Dim::Symbol(id));
    EndEntry("symbol");
  }
}

void Parser::ParseFacts() {
  Expect('{');
  lines_end_expressions_ = true;
  while (!Accept('}')) {
    const size_t offset = anchor_ = token().offset;
    Dim left = ParseSum();
    if (!token().Is("==")) FailExpected("an operator or '=='");
    Advance();
    Dim right = ParseSum();
    anchor_ = offset;
    shapes_->AddFact(left, right);
    EndEntry("fact");
  }
  lines_end_expressions_ = false;
}

void Parser::ParseGuards() {
  Expect('{');
  lines_end_expressions_ = true;
  while (!Accept('}')) {
    const size_t offset = anchor_ = token().offset;
    Dim left = ParseSum();
    const Token comparison = token();
    if (!comparison.Is("==") && !comparison.Is("!=") && !comparison.Is('<') &&
        !comparison.Is('>') && !comparison.Is("<=") && !comparison.Is(">=")) {
      FailExpected("an operator or one of == != < <= > >=");
    }
    Advance();
    Dim right = ParseSum();
    anchor_ = offset;
    if (comparison.Is('>') || comparison.Is("<=")) std::swap(left, right);
    const bool equality = comparison.Is("==") || comparison.Is("!=");
    Guard guard{equality ? Predicate::Equal(left, right) : Predicate::Less(left, right), {}, {}};
    guard.predicate.holds = comparison.Is("==") || comparison.Is('<') || comparison.Is('>');
    guard.predicate.expression.SplitBySign();  // fails where the predicate could not be printed
    if (AcceptWord("by")) {
      guard.module = ExpectInterned("the module that asked, in quotes");
      guard.op = ExpectInterned("the operator that asked, in quotes");
    }
    shapes_->AddGuard(std::move(guard));
    EndEntry("guard");
  }
  lines_end_expressions_ = false;
}

TensorType Parser::ParseType() {
  constexpr std::string_view kWhat = "a type, such as f32[s0, 16]";
  if (token().kind != Kind::kIdentifier) FailExpected(kWhat);
  const auto dtype = ParseDType(token().text);
  if (!dtype) FailExpected(kWhat);
  Advance();
  TensorType type;
  type.dtype = *dtype;
  if (!type.defined()) return type;
  if (!token().Is('[')) FailExpected(fmt::format("'[' and the sizes behind {}", DTypeName(*dtype)));
  const size_t begin = token().offset;
  type.sizes = ParseDims('[', ']');
  // Metadata stands in braces too, but never directly behind the bracket.
  if (token().Is('{') && token().offset == previous_end_) {
    const size_t offset = token().offset;
    type.strides = ParseDims('{', '}');
    if (type.strides.size() != type.sizes.size()) {
      FailAt(ErrorCode::kGtirSyntax, offset,
             fmt::format("{} sizes but {} strides", type.sizes.size(), type.strides.size()));
    }
  } else {
    anchor_ = begin;
    type.strides = ContiguousStrides(type.sizes, *shapes_);
  }
  if (token().kind == Kind::kGlobal) type.device = ParseDeviceSuffix();
  return type;
}

// @cuda or @cuda:1
Device Parser::ParseDeviceSuffix() {
  const size_t offset = token().offset;
  std::string text = ExpectName(Kind::kGlobal, "a device");
  if (Accept(':')) {
    if (token().kind != Kind::kInteger) FailExpected("the index of the device");
    text += ':';
    text += token().text;
    Advance();
  }
  const auto device = ParseDevice(text);
  if (!device) {
    FailAt(ErrorCode::kGtirSyntax, offset,
           "unknown device; expected @cpu, @cuda, @cuda:1 or @meta");
  }
  return *device;
}

void Parser::ParseOutputs() {
  if (token().Is('}')) return;
  do {
    const auto role = ExpectEnum("the role of the output", OutputRole::kResult);
    std::string name = ExpectString("the name of the output, in quotes");
    std::vector<Value*> value;
    ParseOperand(value);
    graph_->AddOutput(role, std::move(name), value[0]);
  } while (Accept(','));
}

const Operator& Parser::ParseOperator() {
  if (token().kind != Kind::kOperator && token().kind != Kind::kIdentifier) {
    FailExpected("an operator, such as aten::mm");
  }
  auto [found, fresh] = operators_.try_emplace(token().text, nullptr);
  if (fresh) found->second = FindOperator(token().text);
  if (found->second == nullptr) {
    const Operator* nearest = NearestOperator(token().text);
    FailHere(ErrorCode::kGtirUnknownOperator,
             fmt::format("there is no operator {}{}", token().text.substr(0, 128),
                         nearest ? fmt::format("; did you mean {}?", nearest->name.str()) : ""));
  }
  Advance();
  return *found->second;
}

void Parser::ParseNode() {
  const size_t statement = token().offset;
  Graph::NodeSpec spec;
  Graph::Typed typed;
  if (token().kind == Kind::kValue) {
    std::vector<size_t> offsets;
    do {
      offsets.push_back(token().offset);
      typed.result_names.push_back(ExpectName(Kind::kValue, "the name of a result, such as %y"));
    } while (Accept(','));
    if (!Accept('=')) FailExpected("'=' and an operator");
    CheckResultNames(typed.result_names, offsets);
  } else if (token().kind != Kind::kOperator && token().kind != Kind::kIdentifier) {
    FailExpected("a node or 'return'");
  }
  spec.op = &ParseOperator();
  ParseArguments(spec);
  ParseResults(*spec.op, statement, typed);
  if (token().Is('{')) spec.meta = ParseMeta();
  graph_->InsertTyped(std::move(spec), std::move(typed));
}

void Parser::CheckResultNames(const std::vector<std::string>& names,
                              const std::vector<size_t>& offsets) const {
  auto fail = [&](size_t i) {
    FailAt(ErrorCode::kDuplicateValue, offsets[i],
           fmt::format("%{} is already the name of another value", names[i]));
  };
  for (size_t i = 0; i < names.size(); ++i) {
    if (graph_->FindValue(names[i]) != nullptr) fail(i);
  }
  if (names.size() == 1) return;
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!seen.emplace(names[i], i).second) fail(i);
  }
}

// Position of the named argument at the current token. The printer writes arguments in order, so
// the search starts at the next one.
int Parser::FindArgument(const Operator& op, int next) const {
  const std::vector<ArgSpec>& specs = op.schema.args;
  const int count = static_cast<int>(specs.size());
  for (int i = 0; i < count; ++i) {
    const int at = (next + i) % count;
    if (specs[static_cast<size_t>(at)].name == token().text) return at;
  }
  std::vector<std::string> names;
  for (const ArgSpec& spec : specs) names.push_back(spec.name);
  FailHere(
      ErrorCode::kGtirBadArgument,
      fmt::format("{} has no argument '{}'{}; its schema is {}", op.name.str(),
                  token().text.substr(0, 64), DidYouMean(token().text, names), op.schema.text));
}

void Parser::ParseArguments(Graph::NodeSpec& spec) {
  const Operator& op = *spec.op;
  const std::vector<ArgSpec>& specs = op.schema.args;
  std::vector<bool> given(specs.size());
  std::vector<Value*> operands;  // in the order of the text
  spec.args.resize(specs.size());
  if (!token().Is('(')) FailExpected(fmt::format("'(' and the arguments of {}", op.name.str()));
  Advance();
  if (!Accept(')')) {
    int next = 0;
    bool named = false;
    do {
      if (token().kind == Kind::kIdentifier && lexer_.PeekCharacter() == '=') {
        named = true;
        next = FindArgument(op, next);
        if (given[static_cast<size_t>(next)]) {
          FailHere(ErrorCode::kGtirBadArgument,
                   fmt::format("argument '{}' is given twice", token().text));
        }
        Advance();
        Expect('=');
      } else if (named) {
        FailExpected("an argument with its name, such as dim = 0, behind other named ones");
      } else if (next == static_cast<int>(specs.size())) {
        FailHere(ErrorCode::kGtirBadArgument, fmt::format("{} takes only {} arguments: {}",
                                                          op.name.str(), next, op.schema.text));
      }
      const auto at = static_cast<size_t>(next++);
      given[at] = true;
      spec.args[at] = ParseArgument(specs[at], operands);
    } while (Accept(','));
    if (!token().Is(')')) FailExpected("',' or ')' behind an argument");
    Advance();
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (given[i]) continue;
    if (!specs[i].default_value) {
      FailAt(ErrorCode::kGtirBadArgument, previous_end_ - 1,
             fmt::format("argument '{}' of {} is missing{}", specs[i].name, op.name.str(),
                         specs[i].optional
                             ? fmt::format("; to leave it out, write {} = none", specs[i].name)
                             : ""));
    }
    spec.args[i] = *specs[i].default_value;
  }
  // Operands are numbered in the order of the schema, whatever the order of the text.
  spec.operands.reserve(operands.size());
  auto renumber = [&](int32_t& index) {
    if (index < 0) return;
    spec.operands.push_back(operands[static_cast<size_t>(index)]);
    index = static_cast<int32_t>(spec.operands.size() - 1);
  };
  for (Argument& arg : spec.args) {
    if (auto* ref = std::get_if<OperandRef>(&arg)) renumber(ref->index);
    if (auto* list = std::get_if<OperandList>(&arg)) {
      for (int32_t& index : list->indices) renumber(index);
    }
  }
}

OperandRef Parser::ParseOperand(std::vector<Value*>& operands) {
  if (token().kind != Kind::kValue) FailExpected("a value, such as %x");
  const size_t offset = token().offset;
  Value* value = nullptr;
  if (token().quoted) {
    value = graph_->FindValue(ExpectName(Kind::kValue, "a value"));
  } else {
    value = graph_->FindValue(token().text);
    if (value == nullptr) {
      FailHere(
          ErrorCode::kGtirUndefinedValue,
          fmt::format("%{} is not defined: neither an input nor an earlier node of graph @{} has "
                      "that name",
                      token().text.substr(0, 64), graph_->name()));
    }
    Advance();
  }
  if (value == nullptr) {
    FailAt(ErrorCode::kGtirUndefinedValue, offset, "this value is not defined");
  }
  operands.push_back(value);
  return OperandRef{static_cast<int32_t>(operands.size() - 1)};
}

template <typename Element, typename Parse>
std::vector<Element> Parser::ParseList(Parse&& parse) {
  std::vector<Element> list;
  Expect('[');
  if (Accept(']')) return list;
  do {
    list.push_back(parse());
  } while (Accept(','));
  if (!Accept(']')) FailExpected("',' or ']'");
  return list;
}

bool Parser::ParseBool() {
  if (AcceptWord("true")) return true;
  if (!AcceptWord("false")) FailExpected("true or false");
  return false;
}

Argument Parser::ParseNumber() {
  if (token().IsWord("true") || token().IsWord("false")) return ParseBool();
  Lexer behind_sign = lexer_;
  if (token().Is('-')) behind_sign.Advance();
  const Token& number = behind_sign.token();
  if (number.kind == Kind::kFloat || number.IsWord("inf") || number.IsWord("nan")) {
    return ExpectFloat();
  }
  return ParseDim();
}

Argument Parser::ParseArgument(const ArgSpec& spec, std::vector<Value*>& operands) {
  if (token().IsWord("none")) {
    if (!spec.AllowsNone()) {
      FailHere(ErrorCode::kGtirBadArgument, fmt::format("argument '{}' cannot be none", spec.name));
    }
    Advance();
    return std::monostate();
  }
  const auto expected = [&](std::string_view what) {
    return fmt::format("{} for argument '{}'", what, spec.name);
  };
  switch (spec.kind) {
    case ArgKind::kTensor:
      if (token().kind == Kind::kValue) return ParseOperand(operands);
      if (token().kind == Kind::kString || token().Is('[')) {
        FailExpected(expected("a value such as %x, or a number,"));
      }
      if (token().kind == Kind::kIdentifier && !symbol_ids_.contains(token().text) &&
          graph_->FindValue(token().text) != nullptr) {
        FailExpected(expected(fmt::format("%{}", token().text)));
      }
      return ParseNumber();
    case ArgKind::kTensorList: {
      if (!token().Is('[')) FailExpected(expected("a list of values, such as [%x, %y],"));
      return OperandList{ParseList<int32_t>([&] {
        if (spec.optional_elements && AcceptWord("none")) return -1;
        return ParseOperand(operands).index;
      })};
    }
    case ArgKind::kInt:
      if (token().kind == Kind::kValue || token().Is('[') || token().kind == Kind::kFloat) {
        FailExpected(expected("an integer"));
      }
      return ParseDim();
    case ArgKind::kIntList:
      if (token().Is('[')) return ParseDims('[', ']');
      if (spec.fixed_length > 0 && token().kind != Kind::kValue) {
        return Shape(static_cast<size_t>(spec.fixed_length), ParseDim());
      }
      FailExpected(expected("a list of integers, such as [s0, 16],"));
    case ArgKind::kFloat:
    case ArgKind::kScalar:
      if (token().kind == Kind::kValue || token().Is('[')) FailExpected(expected("a number"));
      if (spec.kind == ArgKind::kFloat && (token().IsWord("true") || token().IsWord("false"))) {
        FailExpected(expected("a number"));
      }
      return ParseNumber();
    case ArgKind::kFloatList:
      if (!token().Is('[')) FailExpected(expected("a list of numbers"));
      return ParseList<double>([&] { return ExpectFloat(); });
    case ArgKind::kBool:
      if (!token().IsWord("true") && !token().IsWord("false")) {
        FailExpected(expected("true or false"));
      }
      return ParseBool();
    case ArgKind::kBoolList:
      if (!token().Is('[')) FailExpected(expected("a list such as [true, false]"));
      return ParseList<bool>([&] { return ParseBool(); });
    case ArgKind::kString:
      return ExpectString(expected("a string in quotes"));
    case ArgKind::kDType: {
      const auto dtype =
          token().kind == Kind::kIdentifier ? ParseDType(token().text) : std::nullopt;
      if (!dtype) FailExpected(expected("a dtype, such as f32 or bf16,"));
      Advance();
      return *dtype;
    }
    case ArgKind::kDevice: {
      const size_t offset = token().offset;
      const auto device =
          ParseDevice(ExpectString(expected("a device in quotes, such as \"cpu\",")));
      if (!device) FailAt(ErrorCode::kGtirSyntax, offset, "unknown device");
      return *device;
    }
    case ArgKind::kLayout:
      if (!AcceptWord("strided")) FailExpected(expected("strided"));
      return Layout::kStrided;
    case ArgKind::kMemoryFormat:
      if (AcceptWord("preserve")) return MemoryFormat::kPreserve;
      if (!AcceptWord("contiguous")) FailExpected(expected("contiguous or preserve"));
      return MemoryFormat::kContiguous;
    case ArgKind::kGenerator:
      FailExpected(expected("none"));
    case ArgKind::kGraph:
      if (!token().IsWord("graph")) FailExpected(expected("a nested graph"));
      return GraphRef(ParseGraph(graph_));
  }
  FailExpected(expected("an argument"));
}

// What stands behind the arguments, up to the metadata.
void Parser::ParseResults(const Operator& op, size_t statement, Graph::Typed& typed) {
  if (AcceptWord("binds")) {
    typed.bound_symbols = ParseList<SymbolId>([&] {
      const size_t offset = token().offset;
      const SymbolId id = ExpectSymbol();
      if (shapes_->symbol(id).kind != Symbol::Kind::kData) {
        FailAt(ErrorCode::kGtirSyntax, offset,
               fmt::format("{} is bound by an input; a node binds symbols declared as data",
                           shapes_->symbol(id).name));
      }
      return id;
    });
  }
  const size_t count = typed.result_names.size();
  if (count > 0) {
    if (!Accept(':')) FailExpected("':' and the types of the results");
    if (token().Is('(')) {
      Advance();
      do {
        typed.results.push_back(ParseType());
      } while (Accept(','));
      if (!Accept(')')) FailExpected("',' or ')' behind a type");
    } else {
      typed.results.push_back(ParseType());
    }
    if (typed.results.size() != count) {
      FailAt(
          ErrorCode::kGtirSyntax, statement,
          fmt::format("this node names {} results but has {} types", count, typed.results.size()));
    }
  }
  size_t fixed = 0;
  bool list = false;
  for (const ResultSpec& result : op.schema.results) {
    list |= result.list;
    if (!result.list && !result.integer) ++fixed;
  }
  if (count < fixed || (count > fixed && !list)) {
    FailAt(ErrorCode::kGtirBadArgument, statement,
           fmt::format("{} has {}{} results, but {} are named: {}", op.name.str(),
                       list ? "at least " : "", fixed, count, op.schema.text));
  }
  if (token().IsWord("offset")) {
    const size_t offset = token().offset;
    Advance();
    typed.view_offsets = ParseDims('[', ']');
    if (!op.is_view() || typed.view_offsets.size() != count) {
      FailAt(ErrorCode::kGtirSyntax, offset,
             op.is_view()
                 ? fmt::format("{} results but {} offsets", count, typed.view_offsets.size())
                 : fmt::format("{} is not a view: it has no offset", op.name.str()));
    }
  } else if (op.is_view()) {
    typed.view_offsets.resize(count);
  }
}

void Parser::ClaimKey(uint32_t& seen, int bit, std::string_view key) const {
  if (seen >> bit & 1) FailHere(ErrorCode::kGtirSyntax, fmt::format("{} is given twice", key));
  seen |= 1u << bit;
}

Meta Parser::ParseMeta() {
  constexpr std::string_view kKeys[] = {"module",   "phase",     "seq",    "source", "ep",
                                        "exchange", "recompute", "bucket", "chunk"};
  Meta meta;
  uint32_t seen = 0;
  Expect('{');
  if (Accept('}')) return meta;
  do {
    const auto* key = token().kind == Kind::kIdentifier
                          ? std::find(std::begin(kKeys), std::end(kKeys), token().text)
                          : std::end(kKeys);
    if (key == std::end(kKeys)) {
      FailExpected(fmt::format("one of {}", fmt::join(kKeys, ", ")));
    }
    const auto index = static_cast<int>(key - std::begin(kKeys));
    ClaimKey(seen, index, *key);
    Advance();
    Expect('=');
    switch (index) {
      case 0:
        meta.module = ExpectInterned("a module name in quotes");
        break;
      case 1:
        meta.phase = ExpectEnum("a phase", Phase::kBackward);
        break;
      case 2:
        meta.sequence = ExpectInteger("an integer");
        break;
      case 3:
        meta.source = ExpectInterned("a source location in quotes");
        break;
      case 4:
        meta.ep_role = ExpectEnum("a role", EpRole::kCombine);
        break;
      case 5:
        meta.exchange = ExpectEnum("a step", TokenExchange::kExchange);
        break;
      case 6:
        meta.recompute = ExpectEnum("a decision", Recompute::kOffload);
        break;
      case 7:
        meta.fsdp_bucket = ExpectInterned("a bucket name in quotes");
        break;
      default:
        meta.chunk = ParseChunk();
    }
  } while (Accept(','));
  if (!Accept('}')) FailExpected("',' or '}'");
  return meta;
}

std::shared_ptr<const ChunkMeta> Parser::ParseChunk() {
  constexpr std::string_view kKeys[] = {"id",       "region",   "role", "producer",
                                        "backward", "original", "proof"};
  auto chunk = std::make_shared<ChunkMeta>();
  uint32_t seen = 0;
  Expect('{');
  if (Accept('}')) return chunk;
  do {
    const auto* key = token().kind == Kind::kIdentifier
                          ? std::find(std::begin(kKeys), std::end(kKeys), token().text)
                          : std::end(kKeys);
    if (key == std::end(kKeys)) {
      FailExpected(fmt::format("one of {}", fmt::join(kKeys, ", ")));
    }
    const auto index = static_cast<int>(key - std::begin(kKeys));
    ClaimKey(seen, index, *key);
    Advance();
    if (*key == "backward") {
      chunk->backward = true;
      continue;
    }
    Expect('=');
    switch (index) {
      case 0: {
        const size_t offset = token().offset;
        const int64_t id = ExpectInteger("an integer");
        if (id < std::numeric_limits<int32_t>::min() || id > std::numeric_limits<int32_t>::max()) {
          FailAt(ErrorCode::kGtirNumberRange, offset, "a chunk id must fit into 32 bits");
        }
        chunk->id = static_cast<int32_t>(id);
        break;
      }
      case 1:
        chunk->region = ExpectInterned("a module name in quotes");
        break;
      case 2:
        chunk->role = ExpectEnum("a role", ChunkRole::kMaterialization);
        break;
      case 3:
        chunk->producer = ExpectEnum("a producer", ChunkProducer::kGraph);
        break;
      case 5:
        chunk->original = ExpectInterned("a value's name in quotes");
        break;
      default:
        chunk->proof = ExpectEnum("a proof", ChunkProof::kBackwardPartialSum);
    }
  } while (Accept(','));
  if (!Accept('}')) FailExpected("',' or '}'");
  return chunk;
}

}  // namespace

std::unique_ptr<Graph> Parse(std::string_view text, std::string_view file_name) {
  const SourceText source(text, file_name);
  return Parser(source).ParseWhole();
}

std::unique_ptr<Graph> ParseFile(const std::string& path) {
  // The step of a model with hundreds of layers has some hundred megabytes.
  constexpr size_t kLargest = size_t{512} << 20;
  std::string text;
  try {
    text = ReadWholeFile(path, kLargest);
  } catch (const UnreadableFile& problem) {
    Fail(ErrorCode::kGtirUnreadable, "cannot read '{}': {}", path, problem.what());
  }
  return Parse(text, path);
}

}  // namespace gt
