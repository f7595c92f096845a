// The tokens of a .gtir text, one after the other, and the phrases that are one or two tokens long.
// The parsers of larger phrases (ir/*_parser.h) share one reader. Whatever the text gets wrong is a
// TextError that points at the place.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/name.h"
#include "gt/ir/lexer.h"

namespace gt {

class TokenReader {
 public:
  explicit TokenReader(const SourceText& source) : source_(source), lexer_(source) {}

  const SourceText& source() const { return source_; }
  const Token& token() const { return lexer_.token(); }
  // The next character that is not a space, after the current token; 0 at the end.
  char PeekCharacter() const { return lexer_.PeekCharacter(); }
  // Where the token before the current one ends.
  size_t previous_end() const { return previous_end_; }
  void Advance() {
    previous_end_ = token().offset + token().text.size();
    lexer_.Advance();
  }
  // Splits a value token, whose '%' was an operator.
  void TakePercentAsOperator() { lexer_.TakePercentAsOperator(); }
  // A place to come back to.
  const Lexer& place() const { return lexer_; }
  void GoTo(const Lexer& place) { lexer_ = place; }

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
  Name ExpectInterned(std::string_view what);  // a string
  std::string ExpectName(Token::Kind kind, std::string_view what);
  bool ExpectBool();
  int64_t ExpectInteger(std::string_view what);
  double ExpectFloat();
  static constexpr uint64_t kMinimumMagnitude = uint64_t{1} << 63;  // of INT64_MIN
  // An integer without its sign, at most 2^63; IntegerFrom makes one of it that must fit 64 bits.
  uint64_t ExpectMagnitude();
  int64_t IntegerFrom(uint64_t magnitude, bool negative, size_t offset) const;
  // One of the spellings of Enum, whose values are 0 to `last`.
  template <typename Enum>
  Enum ExpectEnum(std::string_view what, Enum last);
  // [a, b, c], each element read by `parse`.
  template <typename Element, typename Parse>
  std::vector<Element> ExpectList(Parse&& parse);

  [[noreturn]] void FailAt(ErrorCode code, size_t offset, std::string_view message) const {
    source_.Fail(code, offset, message);
  }
  [[noreturn]] void FailHere(ErrorCode code, std::string_view message) const {
    FailAt(code, token().offset, message);
  }
  [[noreturn]] void FailExpected(std::string_view what) const;

  // Arithmetic on sizes knows what is wrong, but not where: this is the place to point at.
  void SetAnchor(size_t offset) { anchor_ = offset; }
  size_t anchor() const { return anchor_; }

 private:
  const SourceText& source_;
  Lexer lexer_;
  size_t previous_end_ = 0;
  size_t anchor_ = 0;
  // Keyed by the text of tokens; the same few hundred names occur over and over.
  std::unordered_map<std::string_view, Name> names_;
};

template <typename Enum>
Enum TokenReader::ExpectEnum(std::string_view what, Enum last) {
  const int count = static_cast<int>(last) + 1;
  for (int i = 0; i < count && token().kind == Token::Kind::kIdentifier; ++i) {
    if (AcceptWord(Spelling(static_cast<Enum>(i)))) return static_cast<Enum>(i);
  }
  std::string choices;
  for (int i = 0; i < count; ++i) {
    choices += i == 0 ? "" : i + 1 == count ? " or " : ", ";
    choices += Spelling(static_cast<Enum>(i));
  }
  FailExpected(fmt::format("{} ({})", what, choices));
}

template <typename Element, typename Parse>
std::vector<Element> TokenReader::ExpectList(Parse&& parse) {
  std::vector<Element> list;
  Expect('[');
  if (Accept(']')) return list;
  do {
    list.push_back(parse());
  } while (Accept(','));
  if (!Accept(']')) FailExpected("',' or ']'");
  return list;
}

}  // namespace gt
