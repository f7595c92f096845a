#include "gt/ir/lexer.h"

#include <algorithm>
#include <array>

namespace gt {
namespace {

enum : uint8_t { kSpace = 1, kDigit = 2, kLetter = 4, kNameExtra = 8 };

// One table lookup per character. Locale-independent on purpose.
constexpr std::array<uint8_t, 256> kClasses = [] {
  std::array<uint8_t, 256> classes{};
  for (char c : {' ', '\t', '\r', '\n'}) classes[static_cast<unsigned char>(c)] = kSpace;
  for (int c = '0'; c <= '9'; ++c) classes[static_cast<size_t>(c)] = kDigit;
  for (int c = 'a'; c <= 'z'; ++c) classes[static_cast<size_t>(c)] = kLetter;
  for (int c = 'A'; c <= 'Z'; ++c) classes[static_cast<size_t>(c)] = kLetter;
  classes['_'] = kLetter;
  classes['.'] = kNameExtra;
  return classes;
}();

bool Is(char c, uint8_t classes) {
  return (kClasses[static_cast<unsigned char>(c)] & classes) != 0;
}

size_t SkipWhile(std::string_view text, size_t position, uint8_t classes) {
  while (position < text.size() && Is(text[position], classes)) ++position;
  return position;
}

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Bytes of the well-formed UTF-8 sequence at `position` (no overlong forms, no surrogates), 0 if
// there is none.
size_t Utf8Length(std::string_view text, size_t position) {
  auto byte = [&](size_t i) {
    return position + i < text.size() ? static_cast<unsigned char>(text[position + i]) : 0;
  };
  auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    if (!continues(1) || !continues(2)) return 0;
    if (first == 0xe0 && byte(1) < 0xa0) return 0;
    if (first == 0xed && byte(1) > 0x9f) return 0;
    return 3;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (first == 0xf0 && byte(1) < 0x90) return 0;
    if (first == 0xf4 && byte(1) > 0x8f) return 0;
    return 4;
  }
  return 0;
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

struct Excerpt {
  std::string line;
  size_t caret = 0;
};

// The part of the line around the place, one column per character: tabs become spaces, and bytes
// that a terminal could misread become '?'.
Excerpt ExcerptAround(std::string_view line, size_t place) {
  constexpr size_t kBefore = 72, kAfter = 48;
  Excerpt excerpt;
  size_t begin = place > kBefore ? place - kBefore : 0;
  while (begin > 0 && begin < line.size() && IsContinuation(line[begin])) --begin;
  if (begin > 0) excerpt.line = "...";
  size_t position = begin;
  excerpt.caret = excerpt.line.size();
  size_t columns = excerpt.line.size();
  while (position < line.size() && position < place + kAfter) {
    if (position <= place) excerpt.caret = columns;
    const size_t length = Utf8Length(line, position);
    if (length == 0 || IsControl(line[position])) {
      excerpt.line += line[position] == '\t' ? ' ' : '?';
      ++position;
    } else {
      excerpt.line += line.substr(position, length);
      position += length;
    }
    ++columns;
  }
  if (place >= line.size()) excerpt.caret = columns;
  if (position < line.size()) excerpt.line += "...";
  return excerpt;
}

std::string Describe(char c) {
  if (c > ' ' && c < 0x7f) return fmt::format("'{}'", c);
  return fmt::format("byte 0x{:02x}", static_cast<unsigned char>(c));
}

}  // namespace

void SourceText::Fail(ErrorCode code, size_t offset, std::string_view message) const {
  offset = std::min(offset, text_.size());
  const std::string_view before = text_.substr(0, offset);
  const auto line_number = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0: the first line
  std::string_view line = text_.substr(line_begin);
  line = line.substr(0, line.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::string_view left = before.substr(line_begin);
  const auto column =
      1 + std::count_if(left.begin(), left.end(), [](char c) { return !IsContinuation(c); });
  const Excerpt excerpt = ExcerptAround(line, offset - line_begin);
  throw TextError(code, fmt::format("{}:{}:{}: {}\n  {}\n  {:>{}}", file_, line_number, column,
                                    message, excerpt.line, '^', excerpt.caret + 1));
}

void Lexer::SkipSpace() {
  const std::string_view text = source_->text();
  token_.starts_line = position_ == 0;
  while (true) {
    while (position_ < text.size() && Is(text[position_], kSpace)) {
      if (text[position_] == '\n') token_.starts_line = true;
      ++position_;
    }
    if (!text.substr(position_).starts_with("//") || SlashesDivide()) return;
    position_ = std::min(text.find('\n', position_), text.size());
  }
}

// Called while token_ is still the one before.
bool Lexer::SlashesDivide() const {
  return brackets_ > 0 && (token_.kind == Token::Kind::kIdentifier ||
                           token_.kind == Token::Kind::kInteger || token_.Is(')'));
}

char Lexer::PeekCharacter() const {
  const std::string_view text = source_->text();
  const size_t position = SkipWhile(text, position_, kSpace);
  return position < text.size() ? text[position] : '\0';
}

void Lexer::TakePercentAsOperator() {
  position_ = token_.offset + 1;
  // An operator is followed by an operand, never by floor division.
  token_.kind = Token::Kind::kPunctuation;
  token_.text = source_->text().substr(token_.offset, 1);
  Advance();
}

size_t Lexer::EndOfString(size_t begin) const {
  const std::string_view text = source_->text();
  size_t position = begin;
  while (position < text.size()) {
    const char c = text[position];
    if (c == '"') return position;
    if (c == '\n') break;
    if (c == '\\') {
      position += 2;
      continue;
    }
    const size_t length = Utf8Length(text, position);
    if (length == 0) {
      source_->Fail(ErrorCode::kGtirSyntax, position,
                    "this string is not valid UTF-8; write such bytes as \\xHH");
    }
    position += length;
  }
  source_->Fail(ErrorCode::kGtirSyntax, begin - 1, "this string has no closing quote on its line");
}

// % or @, then a plain name or a quoted one.
void Lexer::ReadName(Token::Kind kind) {
  const std::string_view text = source_->text();
  const size_t begin = position_ + 1;
  if (begin < text.size() && text[begin] == '"') {
    const size_t end = EndOfString(begin + 1);
    token_.kind = kind;
    token_.quoted = true;
    token_.text = text.substr(begin + 1, end - begin - 1);
    position_ = end + 1;
    return;
  }
  const size_t end = SkipWhile(text, begin, kLetter | kDigit | kNameExtra);
  if (end == begin) {  // a lone % is the remainder operator
    token_.kind = Token::Kind::kPunctuation;
    token_.text = text.substr(position_, 1);
  } else {
    token_.kind = kind;
    token_.text = text.substr(begin, end - begin);
  }
  position_ = end;
}

void Lexer::ReadNumber() {
  const std::string_view text = source_->text();
  size_t end = SkipWhile(text, position_, kDigit);
  token_.kind = Token::Kind::kInteger;
  auto digits_at = [&](size_t at) { return at < text.size() && Is(text[at], kDigit); };
  if (end < text.size() && text[end] == '.' && digits_at(end + 1)) {
    token_.kind = Token::Kind::kFloat;
    end = SkipWhile(text, end + 1, kDigit);
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    const bool sign = end + 1 < text.size() && (text[end + 1] == '-' || text[end + 1] == '+');
    const size_t exponent = end + 1 + (sign ? 1 : 0);
    if (digits_at(exponent)) {
      token_.kind = Token::Kind::kFloat;
      end = SkipWhile(text, exponent, kDigit);
    }
  }
  if (end < text.size() && Is(text[end], kLetter | kDigit | kNameExtra)) {
    source_->Fail(ErrorCode::kGtirSyntax, end,
                  fmt::format("{} cannot stand directly behind a number", Describe(text[end])));
  }
  token_.text = text.substr(position_, end - position_);
  position_ = end;
}

void Lexer::Advance() {
  SkipSpace();
  const std::string_view text = source_->text();
  token_.quoted = false;
  token_.offset = position_;
  if (position_ == text.size()) {
    token_.kind = Token::Kind::kEnd;
    token_.text = {};
    return;
  }
  const char c = text[position_];
  if (Is(c, kLetter)) {
    size_t end = SkipWhile(text, position_, kLetter | kDigit);
    token_.kind = Token::Kind::kIdentifier;
    if (text.substr(end).starts_with("::")) {
      token_.kind = Token::Kind::kOperator;
      end = SkipWhile(text, end + 2, kLetter | kDigit | kNameExtra);
    }
    token_.text = text.substr(position_, end - position_);
    position_ = end;
    return;
  }
  if (Is(c, kDigit)) return ReadNumber();
  switch (c) {
    case '%':
      return ReadName(Token::Kind::kValue);
    case '@':
      return ReadName(Token::Kind::kGlobal);
    case '"': {
      const size_t end = EndOfString(position_ + 1);
      token_.kind = Token::Kind::kString;
      token_.text = text.substr(position_ + 1, end - position_ - 1);
      position_ = end + 1;
      return;
    }
    case '[':
      ++brackets_;
      break;
    case ']':
      brackets_ = std::max(brackets_ - 1, 0);
      break;
    case '(':
    case ')':
    case '{':
    case '}':
    case ',':
    case ':':
    case ';':
    case '=':
    case '+':
    case '-':
    case '*':
    case '/':
    case '<':
    case '>':
    case '!':
      break;
    default:
      source_->Fail(ErrorCode::kGtirSyntax, position_,
                    fmt::format("{} is not part of the .gtir form", Describe(c)));
  }
  const std::string_view two = text.substr(position_, 2);
  const bool pair = two == "==" || two == "!=" || two == "<=" || two == ">=" || two == "//";
  token_.kind = Token::Kind::kPunctuation;
  token_.text = two.substr(0, pair ? 2 : 1);
  position_ += token_.text.size();
}

bool IsPlainName(std::string_view name) {
  return !name.empty() && SkipWhile(name, 0, kLetter | kDigit | kNameExtra) == name.size();
}

bool IsIdentifier(std::string_view text) {
  return !text.empty() && Is(text[0], kLetter) &&
         SkipWhile(text, 0, kLetter | kDigit) == text.size();
}

void AppendQuoted(std::string& out, std::string_view text) {
  out += '"';
  size_t plain = 0;  // first character not yet copied
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t length = Utf8Length(text, i);
    if (length != 0 && !IsControl(c) && c != '"' && c != '\\') {
      i += length;
      continue;
    }
    out.append(text, plain, i - plain);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
    plain = ++i;
  }
  out.append(text, plain);
  out += '"';
}

std::string Unquoted(std::string_view body, size_t offset, const SourceText& source) {
  std::string result;
  result.reserve(body.size());
  auto hex = [&](size_t at) -> int {
    if (at >= body.size()) return -1;
    const char c = body[at];
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      result += body[i];
      continue;
    }
    // The lexer took the character after a backslash into the string, so there is one.
    switch (const char c = body[++i]; c) {
      case '"':
      case '\\':
        result += c;
        break;
      case 'n':
        result += '\n';
        break;
      case 't':
        result += '\t';
        break;
      case 'x':
        if (hex(i + 1) >= 0 && hex(i + 2) >= 0) {
          result += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
          i += 2;
          break;
        }
        [[fallthrough]];
      default:
        source.Fail(ErrorCode::kGtirSyntax, offset + i - 1,
                    "unknown escape; a string may hold \\\" \\\\ \\n \\t and \\xHH");
    }
  }
  return result;
}

}  // namespace gt
