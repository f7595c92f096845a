#include "gt/ir/token_reader.h"

#include <charconv>
#include <limits>

namespace gt {

void TokenReader::FailExpected(std::string_view what) const {
  std::string found;
  const Token& token = lexer_.token();
  if (token.kind == Token::Kind::kEnd) {
    found = "the end of the text";
  } else {
    constexpr size_t kLongest = 40;
    found = token.kind == Token::Kind::kValue ? "%" : token.kind == Token::Kind::kGlobal ? "@" : "";
    found += token.kind == Token::Kind::kString ? "a string" : token.text.substr(0, kLongest);
    if (token.kind != Token::Kind::kString) found = fmt::format("'{}'", found);
  }
  FailHere(ErrorCode::kGtirSyntax, fmt::format("expected {}, found {}", what, found));
}

std::string TokenReader::ExpectString(std::string_view what) {
  if (token().kind != Token::Kind::kString) FailExpected(what);
  std::string text = Unquoted(token().text, token().offset + 1, source_);
  Advance();
  return text;
}

std::string TokenReader::ExpectName(Token::Kind kind, std::string_view what) {
  if (token().kind != kind) FailExpected(what);
  std::string name = token().quoted ? Unquoted(token().text, token().offset + 2, source_)
                                    : std::string(token().text);
  if (name.empty()) FailHere(ErrorCode::kGtirSyntax, "a name cannot be empty");
  Advance();
  return name;
}

Name TokenReader::ExpectInterned(std::string_view what) {
  if (token().kind != Token::Kind::kString) FailExpected(what);
  auto [found, fresh] = names_.try_emplace(token().text);
  if (fresh) found->second = Name(Unquoted(token().text, token().offset + 1, source_));
  Advance();
  return found->second;
}

int64_t TokenReader::IntegerFrom(uint64_t magnitude, bool negative, size_t offset) const {
  if (magnitude > kMinimumMagnitude - (negative ? 0 : 1)) {
    FailAt(ErrorCode::kGtirNumberRange, offset, "this integer does not fit into 64 bits");
  }
  return static_cast<int64_t>(negative ? -magnitude : magnitude);
}

uint64_t TokenReader::ExpectMagnitude() {
  const std::string_view text = token().text;
  uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), magnitude);
  if (error != std::errc() || magnitude > kMinimumMagnitude) {
    FailHere(ErrorCode::kGtirNumberRange, "this integer does not fit into 64 bits");
  }
  Advance();
  return magnitude;
}

int64_t TokenReader::ExpectInteger(std::string_view what) {
  const size_t offset = token().offset;
  const bool negative = Accept('-');
  if (token().kind != Token::Kind::kInteger) FailExpected(what);
  return IntegerFrom(ExpectMagnitude(), negative, offset);
}

double TokenReader::ExpectFloat() {
  double sign = 1;
  const std::string_view what = "a number";
  if (Accept('-')) {
    sign = -1;
    if (token().IsWord("nan")) FailExpected(what);
  }
  if (AcceptWord("inf")) return sign * std::numeric_limits<double>::infinity();
  if (AcceptWord("nan")) return std::numeric_limits<double>::quiet_NaN();
  if (token().kind != Token::Kind::kFloat && token().kind != Token::Kind::kInteger)
    FailExpected(what);
  const std::string_view text = token().text;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) {
    FailHere(ErrorCode::kGtirNumberRange, "this number does not fit into a double");
  }
  Advance();
  return sign * value;
}

bool TokenReader::ExpectBool() {
  if (AcceptWord("true")) return true;
  if (!AcceptWord("false")) FailExpected("true or false");
  return false;
}

}  // namespace gt
