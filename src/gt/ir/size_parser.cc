#include "gt/ir/size_parser.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "gt/base/text.h"

namespace gt {
namespace {

constexpr int kMaxExpressionDepth = 64;  // shallow enough for the stack
constexpr std::string_view kReserved[] = {"none", "true",     "false", "inf",
                                          "nan",  "floordiv", "min",   "max"};

}  // namespace

void SizeParser::Declare(std::string_view name, SymbolId id) {
  symbol_ids_.emplace(name, id);
  symbol_dims_.push_back(Dim::Symbol(id));
}

bool SizeParser::IsReserved(std::string_view word) {
  return std::find(std::begin(kReserved), std::end(kReserved), word) != std::end(kReserved);
}

// Almost every size is one number or one symbol.
Dim SizeParser::Parse() {
  in_.SetAnchor(in_.token().offset);
  const char next = in_.PeekCharacter();
  if (next == ',' || next == ']' || next == ')' || next == '}') {
    if (in_.token().kind == Token::Kind::kInteger) return ParseInteger();
    if (in_.token().kind == Token::Kind::kIdentifier) return ParseSymbol();
  }
  return ParseSum();
}

Dim SizeParser::ParseSum() {
  if (++depth_ > kMaxExpressionDepth) {
    in_.FailHere(ErrorCode::kGtirTooDeep,
                 fmt::format("this expression is nested more than {} deep", kMaxExpressionDepth));
  }
  std::vector<Dim> terms;
  terms.push_back(ParseProduct(/*subtracted=*/false));
  while ((in_.token().Is('+') || in_.token().Is('-')) &&
         !(lines_end_expressions_ && in_.token().starts_line)) {
    const bool subtracted = in_.token().Is('-');
    in_.Advance();
    terms.push_back(ParseProduct(subtracted));
  }
  --depth_;
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
// number after one may fit only when negative.
Dim SizeParser::ParseProduct(bool subtracted) {
  bool negative = false;
  auto accept_signs = [&] {
    while (in_.Accept('-')) negative = !negative;
  };
  auto next_factor = [&]() -> Dim {
    if (in_.token().kind != Token::Kind::kInteger) return ParseFactor();
    const size_t offset = in_.token().offset;
    const uint64_t magnitude = in_.ExpectMagnitude();
    bool takes_sign = false;
    if (magnitude == TokenReader::kMinimumMagnitude)
      takes_sign = std::exchange(negative ? negative : subtracted, false);
    return in_.IntegerFrom(magnitude, takes_sign, offset);
  };
  accept_signs();
  Dim product = next_factor();
  while (!(lines_end_expressions_ && in_.token().starts_line)) {
    if (in_.Accept('*')) {
      accept_signs();
      product = product * next_factor();
      continue;
    }
    const bool divides = in_.token().Is("//");
    const bool remainder = in_.token().kind == Token::Kind::kValue || in_.token().Is('%');
    if (!divides && !remainder) break;
    if (std::exchange(negative, false)) product = -product;
    if (remainder) {
      in_.TakePercentAsOperator();
    } else {
      in_.Advance();
    }
    accept_signs();
    Dim divisor = ParseFactor();
    if (std::exchange(negative, false)) divisor = -divisor;
    product = divides ? FloorDiv(product, divisor) : Mod(product, divisor);
  }
  return negative != subtracted ? -product : product;
}

Dim SizeParser::ParseInteger() {
  const size_t offset = in_.token().offset;
  return in_.IntegerFrom(in_.ExpectMagnitude(), false, offset);
}

Dim SizeParser::ParseFactor() {
  if (in_.token().kind == Token::Kind::kInteger) return ParseInteger();
  if (in_.Accept('(')) {
    Dim inner = ParseSum();
    in_.Expect(')');
    return inner;
  }
  if (in_.token().kind == Token::Kind::kIdentifier && in_.PeekCharacter() == '(') {
    for (const auto& [name, apply] :
         {std::pair<std::string_view, Dim (*)(const Dim&, const Dim&)>{"floordiv", FloorDiv},
          {"min", Min},
          {"max", Max}}) {
      if (!in_.AcceptWord(name)) continue;
      in_.Expect('(');
      Dim a = ParseSum();
      in_.Expect(',');
      Dim b = ParseSum();
      in_.Expect(')');
      return apply(a, b);
    }
    in_.FailExpected("floordiv, min or max");
  }
  return ParseSymbol();
}

SymbolId SizeParser::ExpectSymbol() {
  if (in_.token().kind != Token::Kind::kIdentifier) in_.FailExpected("an integer or a symbol");
  const auto found = symbol_ids_.find(in_.token().text);
  if (found == symbol_ids_.end()) {
    if (IsReserved(in_.token().text)) in_.FailExpected("an integer or a symbol");
    std::vector<std::string> declared;
    for (const auto& [name, id] : symbol_ids_) declared.emplace_back(name);
    std::sort(declared.begin(), declared.end());
    in_.FailHere(
        ErrorCode::kUnboundSymbol,
        fmt::format("unbound symbol '{}': the graph's `symbols {{ ... }}` does not declare it{}",
                    in_.token().text.substr(0, 64), DidYouMean(in_.token().text, declared)));
  }
  in_.Advance();
  return found->second;
}

Shape SizeParser::ParseList(char open, char close) {
  Shape dims;
  in_.Expect(open);
  if (in_.Accept(close)) return dims;
  do {
    dims.push_back(Parse());
  } while (in_.Accept(','));
  if (!in_.Accept(close)) in_.FailExpected(fmt::format("an operator, ',' or '{}'", close));
  return dims;
}

}  // namespace gt
