// Splits .gtir text into tokens. Works on views of the text and allocates nothing; positions are
// turned into lines and columns only when something is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gt/base/error.h"

namespace gt {

// An error whose message already says where in the text it is.
class TextError : public Error {
 public:
  using Error::Error;
};

// The text being read, for messages that point into it.
class SourceText {
 public:
  SourceText(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  std::string_view text() const { return text_; }
  // Throws a TextError "file:line:column: message", followed by the line and a caret below the
  // place.
  [[noreturn]] void Fail(ErrorCode code, std::size_t offset, std::string_view message) const;

 private:
  std::string_view text_;
  std::string_view file_;
};

struct Token {
  enum class Kind : uint8_t {
    kEnd,
    kIdentifier,   // graph, s0, f32
    kOperator,     // aten::transpose.int
    kValue,        // %mm_3 or %"any text"
    kGlobal,       // @step or @"any text"
    kInteger,      // 12, without sign
    kFloat,        // 1.5, 1e-05, without sign
    kString,       // "..."
    kPunctuation,  // one character, or one of == != <= >= //
  };
  Kind kind = Kind::kEnd;
  bool quoted = false;       // a value or global whose name is in quotes
  bool starts_line = false;  // nothing but space between it and the line's beginning
  std::size_t offset = 0;    // of its first character
  // Values and globals without % or @, strings without their quotes but with their escapes.
  std::string_view text;

  bool Is(char c) const { return kind == Kind::kPunctuation && text.size() == 1 && text[0] == c; }
  bool Is(std::string_view punctuation) const {
    return kind == Kind::kPunctuation && text == punctuation;
  }
  bool IsWord(std::string_view word) const { return kind == Kind::kIdentifier && text == word; }
};

// A lexer is a position in the text: copying it is how the parser remembers a place to come back
// to.
//
// "//" begins a comment, except inside square brackets after an operand, where it is floor
// division: sizes are written there, and `f32[s0 // 2]` is what people type.
class Lexer {
 public:
  explicit Lexer(const SourceText& source) : source_(&source) { Advance(); }

  const Token& token() const { return token_; }
  void Advance();
  // The next character after the current token that is not a space; 0 at the end.
  char PeekCharacter() const;
  // Splits a value token: its '%' was an operator. The next token begins right after it.
  void TakePercentAsOperator();

 private:
  void SkipSpace();
  bool SlashesDivide() const;
  void ReadNumber();
  void ReadName(Token::Kind kind);
  std::size_t EndOfString(std::size_t begin) const;

  const SourceText* source_;
  std::size_t position_ = 0;
  int brackets_ = 0;
  Token token_;
};

// Characters of a name that needs no quotes after % or @.
bool IsPlainName(std::string_view name);
// A letter or '_', then letters, digits and '_'.
bool IsIdentifier(std::string_view text);

// Appends the text in double quotes. Any sequence of bytes survives: what is not printable UTF-8
// becomes \xHH.
void AppendQuoted(std::string& out, std::string_view text);
// Undoes the escapes of a string token that is at `offset`.
std::string Unquoted(std::string_view body, std::size_t offset, const SourceText& source);

}  // namespace gt
