#include "gt/config/toml.h"

#include <charconv>
#include <map>
#include <optional>

#include "gt/base/error.h"
#include "gt/base/text.h"

namespace gt::toml {
namespace {

bool IsBareKeyCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

void AppendUtf8(std::uint32_t code_point, std::string& out) {
  const auto put = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

// TOML allows '_' only between two digits. Nothing is returned where one is anywhere else.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const auto is_alphanumeric = [](char c) {
      return IsBareKeyCharacter(c) && c != '_' && c != '-';
    };
    if (i == 0 || i + 1 == text.size() || !is_alphanumeric(text[i - 1]) ||
        !is_alphanumeric(text[i + 1])) {
      return std::nullopt;
    }
  }
  return digits;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Document Run() {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text_.starts_with(kByteOrderMark)) position_ = kByteOrderMark.size();
    std::string section;
    while (true) {
      SkipBlankLines();
      if (AtEnd()) return std::move(document_);
      if (Peek() == '[') {
        section = ReadSectionHeader();
      } else {
        ReadEntry(section);
      }
      ExpectEndOfLine();
    }
  }

 private:
  template <typename... Args>
  [[noreturn]] void Malformed(fmt::format_string<Args...> format, Args&&... args) const {
    Fail(ErrorCode::kMalformedToml, "{}:{}: {}", file_, line_,
         fmt::format(format, std::forward<Args>(args)...));
  }

  bool AtEnd() const { return position_ >= text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[position_]; }
  bool Looking(std::string_view at) const { return text_.substr(position_).starts_with(at); }
  bool Take(char c) {
    if (AtEnd() || Peek() != c) return false;
    ++position_;
    return true;
  }

  // What is at the cursor, for messages.
  std::string Here() const {
    if (AtEnd()) return "the end of the file";
    std::string_view rest = text_.substr(position_);
    rest = rest.substr(0, rest.find('\n'));
    rest = Trim(rest);
    if (rest.empty()) return "the end of the line";
    constexpr std::size_t kShown = 40;
    return Quoted(rest.substr(0, kShown));
  }

  void SkipSpaces() {
    while (Peek() == ' ' || Peek() == '\t') ++position_;
  }

  void SkipComment() {
    if (Peek() != '#') return;
    while (!AtEnd() && Peek() != '\n') ++position_;
  }

  bool TakeNewline() {
    if (Looking("\r\n")) ++position_;
    if (!Take('\n')) return false;
    ++line_;
    return true;
  }

  void SkipBlankLines() {
    do {
      SkipSpaces();
      SkipComment();
    } while (TakeNewline());
  }

  void ExpectEndOfLine() {
    SkipSpaces();
    SkipComment();
    if (!AtEnd() && !TakeNewline()) Malformed("expected the end of the line, found {}", Here());
  }

  std::string ReadSectionHeader() {
    const int line = line_;
    ++position_;
    if (Peek() == '[')
      Malformed("arrays of tables such as [[name]] are not supported; write [name]");
    std::string path = ReadKey("a section name");
    SkipSpaces();
    if (!Take(']')) Malformed("expected ] after the section name {}, found {}", path, Here());
    if (const auto [first, is_new] = section_lines_.emplace(path, line); !is_new) {
      Fail(ErrorCode::kDuplicateKey, "{}:{}: section [{}] was already opened in line {}", file_,
           line, path, first->second);
    }
    document_.sections.push_back({path, line});
    return path;
  }

  void ReadEntry(const std::string& section) {
    const int line = line_;
    const std::string key = ReadKey("a key");
    const std::string path = section.empty() ? key : section + "." + key;
    SkipSpaces();
    if (!Take('=')) Malformed("expected = after the key {}, found {}", path, Here());
    SkipSpaces();
    if (Peek() == '{') {
      ReadInlineTable(path);
      return;
    }
    Value value = ReadValue(path, 0);
    if (const auto [first, is_new] = key_lines_.emplace(path, line); !is_new) {
      Fail(ErrorCode::kDuplicateKey, "{}:{}: {} was already set in line {}", file_, line, path,
           first->second);
    }
    document_.entries.push_back({path, line, std::move(value)});
  }

  void ReadInlineTable(const std::string& path) {
    if (++nesting_ > kDeepest) Malformed("{} is nested too deeply", path);
    ++position_;
    SkipSpaces();
    if (!Take('}')) {
      do {
        SkipSpaces();
        ReadEntry(path);
        SkipSpaces();
      } while (Take(','));
      if (!Take('}')) Malformed("expected , or }} in the table {}, found {}", path, Here());
    }
    --nesting_;
  }

  // One or more names joined by dots.
  std::string ReadKey(std::string_view what) {
    std::string path;
    do {
      SkipSpaces();
      if (!path.empty()) path += '.';
      if (Peek() == '"' || Peek() == '\'') {
        path += ReadString();
      } else {
        const std::size_t begin = position_;
        while (!AtEnd() && IsBareKeyCharacter(Peek())) ++position_;
        if (position_ == begin) Malformed("expected {}, found {}", what, Here());
        path += text_.substr(begin, position_ - begin);
      }
      SkipSpaces();
    } while (Take('.'));
    return path;
  }

  Value ReadValue(const std::string& path, int depth) {
    if (Peek() == '"' || Peek() == '\'') return {ReadString()};
    if (Peek() == '[') return {ReadArray(path, depth)};
    if (Peek() == '{') Malformed("{}: tables inside of lists are not supported", path);
    return ReadBareValue(path);
  }

  Array ReadArray(const std::string& path, int depth) {
    if (depth > kDeepest) Malformed("{} is nested too deeply", path);
    const int opened = line_;
    ++position_;
    Array items;
    while (true) {
      SkipBlankLines();
      if (Take(']')) return items;
      if (AtEnd()) Malformed("the list {} opened in line {} is not closed; add ]", path, opened);
      items.push_back(ReadValue(path, depth + 1));
      SkipBlankLines();
      if (!Take(',') && Peek() != ']') {
        Malformed("expected , or ] in the list {}, found {}", path, Here());
      }
    }
  }

  std::string ReadString() {
    const char quote = Peek();
    if (Looking("\"\"\"") || Looking("'''")) Malformed("multi-line strings are not supported");
    ++position_;
    std::string result;
    while (!Take(quote)) {
      if (AtEnd() || Peek() == '\n' || Looking("\r\n")) {
        Malformed("a string is not closed; add {} before the end of the line", quote);
      }
      const char c = text_[position_++];
      if (c == '\\' && quote == '"') {
        ReadEscape(result);
      } else if (static_cast<unsigned char>(c) < 0x20 && c != '\t') {
        Malformed("control character {} in a string; write it as an escape",
                  Quoted(std::string_view(&c, 1)));
      } else {
        result += c;
      }
    }
    return result;
  }

  void ReadEscape(std::string& out) {
    const char kind = Peek();
    ++position_;
    switch (kind) {
      case 'b':
        out += '\b';
        return;
      case 't':
        out += '\t';
        return;
      case 'n':
        out += '\n';
        return;
      case 'f':
        out += '\f';
        return;
      case 'r':
        out += '\r';
        return;
      case '"':
        out += '"';
        return;
      case '\\':
        out += '\\';
        return;
      case 'u':
        AppendUtf8(ReadCodePoint(4), out);
        return;
      case 'U':
        AppendUtf8(ReadCodePoint(8), out);
        return;
      default:
        Malformed("unknown escape \\{} in a string; use single quotes for text with backslashes",
                  kind >= ' ' && kind < 0x7f ? std::string(1, kind) : "");
    }
  }

  std::uint32_t ReadCodePoint(std::size_t digits) {
    const std::string_view hex = text_.substr(std::min(position_, text_.size()), digits);
    std::uint32_t code_point = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code_point, 16);
    const bool complete = hex.size() == digits && end == hex.data() + hex.size();
    const bool surrogate = code_point >= 0xD800 && code_point < 0xE000;
    if (error != std::errc() || !complete || surrogate || code_point > 0x10FFFF) {
      Malformed("an escape needs {} hexadecimal digits of a Unicode character", digits);
    }
    position_ += digits;
    return code_point;
  }

  Value ReadBareValue(const std::string& path) {
    const std::size_t begin = position_;
    while (!AtEnd() &&
           (IsBareKeyCharacter(Peek()) || Peek() == '+' || Peek() == '.' || Peek() == ':')) {
      ++position_;
    }
    const std::string_view word = text_.substr(begin, position_ - begin);
    if (word.empty()) Malformed("expected a value for {}, found {}", path, Here());
    if (word == "true") return {true};
    if (word == "false") return {false};
    if (IsDigit(word.front()) || word.front() == '+' || word.front() == '-') {
      if (const auto number = ReadNumber(word, path)) return *number;
    }
    if (word == "inf" || word == "nan")
      Malformed("{}: {} is not a number to train with", path, word);
    MalformedWord(word, path);
  }

  // Common mistakes: missing quotes, and Python's True, False and None.
  [[noreturn]] void MalformedWord(std::string_view word, const std::string& path) const {
    if (const std::optional<bool> boolean = BooleanFromText(word)) {
      Malformed("{} = {} is not a TOML value; write {} = {}, in lower case", path, word, path,
                *boolean);
    }
    if (word == "None") {
      Malformed("{} = {} is not a TOML value; leave the line out to keep the default", path, word);
    }
    Malformed("{} = {} is not a TOML value; a string needs quotes: {} = {}", path, word, path,
              Quoted(word));
  }

  std::optional<Value> ReadNumber(std::string_view word, const std::string& path) const {
    const std::optional<std::string> plain = WithoutUnderscores(word);
    if (!plain) return std::nullopt;
    std::string_view digits = *plain;
    const bool negative = digits.front() == '-';
    if (digits.front() == '+') digits.remove_prefix(1);
    const std::string_view magnitude = negative ? digits.substr(1) : digits;
    if (magnitude.empty() || !IsDigit(magnitude.front())) return std::nullopt;

    int base = 10;
    if (magnitude.starts_with("0x")) base = 16;
    if (magnitude.starts_with("0o")) base = 8;
    if (magnitude.starts_with("0b")) base = 2;
    if (base != 10) {
      // TOML has no signed hexadecimal, octal or binary numbers.
      if (magnitude.size() != plain->size()) return std::nullopt;
      digits.remove_prefix(2);
      if (digits.empty() || digits.front() == '-') return std::nullopt;
    } else if (magnitude.size() > 1 && magnitude[0] == '0' && IsDigit(magnitude[1])) {
      Malformed("{} = {}: numbers do not start with 0", path, word);
    }

    const char* end = digits.data() + digits.size();
    std::int64_t integer = 0;
    const auto as_integer = std::from_chars(digits.data(), end, integer, base);
    if (as_integer.ptr == end) {
      if (as_integer.ec == std::errc()) return Value{integer};
      Malformed("{} = {} does not fit in 64 bits", path, word);
    }
    if (base != 10) return std::nullopt;
    // A dot needs a digit on each side in TOML; from_chars would take "1." as well.
    if (const std::size_t dot = digits.find('.'); dot != std::string_view::npos) {
      if (dot + 1 == digits.size() || !IsDigit(digits[dot + 1])) return std::nullopt;
    }
    double number = 0;
    const auto as_number = std::from_chars(digits.data(), end, number);
    if (as_number.ptr != end) return std::nullopt;
    if (as_number.ec != std::errc()) Malformed("{} = {} does not fit in a double", path, word);
    return Value{number};
  }

  // Recursion is bounded, so that no file can overflow the stack.
  static constexpr int kDeepest = 32;

  std::string_view text_;
  std::string_view file_;
  std::size_t position_ = 0;
  int line_ = 1;
  int nesting_ = 0;
  Document document_;
  std::map<std::string, int> key_lines_;
  std::map<std::string, int> section_lines_;
};

struct Describer {
  std::string operator()(bool value) const { return fmt::format("the boolean {}", value); }
  std::string operator()(std::int64_t value) const { return fmt::format("the integer {}", value); }
  std::string operator()(double value) const { return fmt::format("the float {}", value); }
  std::string operator()(const std::string& value) const {
    return fmt::format("the string {}", Quoted(value));
  }
  std::string operator()(const Array&) const { return "a list"; }
};

}  // namespace

std::string Describe(const Value& value) { return std::visit(Describer{}, value.data); }

Document Parse(std::string_view text, std::string_view file) { return Parser(text, file).Run(); }

}  // namespace gt::toml
