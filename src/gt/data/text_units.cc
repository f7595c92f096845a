#include "gt/data/text_units.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "gt/base/text.h"

namespace gt {
namespace {

bool IsUtf8Continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The last place at or before `end` that is between two characters of UTF-8; `end` itself when the
// bytes around it are not UTF-8 anyway.
std::size_t CharacterBoundary(std::string_view bytes, std::size_t end) {
  constexpr std::size_t kLongestCharacter = 4;
  for (std::size_t back = 0; back < kLongestCharacter && back < end; ++back) {
    if (end - back >= bytes.size() || !IsUtf8Continuation(bytes[end - back])) return end - back;
  }
  return end;
}

std::optional<std::size_t> PieceLength(std::string_view bytes, bool complete) {
  if (bytes.size() <= kPieceBytes) {
    return complete ? std::optional(bytes.size()) : std::nullopt;
  }
  const std::string_view reach = bytes.substr(0, kPieceMost);
  const std::size_t line_end = reach.find('\n', kPieceBytes - 1);
  if (line_end != std::string_view::npos) return line_end + 1;
  // One byte beyond the cut tells whether it would divide a character.
  if (bytes.size() > kPieceMost) return CharacterBoundary(bytes, kPieceMost);
  return complete ? std::optional(bytes.size()) : std::nullopt;
}

std::optional<std::size_t> LineLength(std::string_view bytes, bool complete) {
  const std::string_view reach = bytes.substr(0, kLineMost);
  const std::size_t line_end = reach.find('\n');
  if (line_end != std::string_view::npos) return line_end + 1;
  if (complete && bytes.size() <= kLineMost) return bytes.size();
  return std::nullopt;
}

// Picks the two fields out of the stream of parser events, so that no tree of the line is built:
// lines often carry much more than the text.
class TextFieldHandler : public nlohmann::json::json_sax_t {
 public:
  bool null() override { return Value("null"); }
  bool boolean(bool) override { return Value("a boolean"); }
  bool number_integer(number_integer_t) override { return Value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return Value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return Value("a number"); }
  bool binary(binary_t&) override { return Value("binary data"); }

  bool string(string_t& value) override {
    if (Field* field = CurrentField()) {
      field->found = "a string";
      field->value = std::move(value);
      return true;
    }
    return Value("a string");
  }

  bool start_object(std::size_t) override {
    if (depth_ > 0) Value("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    const bool go_on = Value("an array");
    ++depth_;
    return go_on;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) key_ = name;
    return true;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 3: what" becomes "what". The
    // column is worth keeping, the line is always 1.
    std::string_view what = error.what();
    if (const auto at = what.find("column "); at != std::string_view::npos) what.remove_prefix(at);
    problem_ = fmt::format("is not JSON ({})", Shortened(what));
    return false;
  }

  JsonlText Result() {
    if (!problem_.empty()) return {{}, Hinted(problem_)};
    for (Field* field : {&text_, &content_}) {
      if (field->found == "a string") return {std::move(field->value), {}};
      if (!field->found.empty()) {
        return {
            {},
            fmt::format("has {} in \"{}\", where the text should be", field->found, field->name)};
      }
    }
    return {{}, "has neither a field \"text\" nor \"content\""};
  }

 private:
  struct Field {
    std::string_view name;
    std::string_view found = {};  // what kind of value it has; empty: not there
    std::string value = {};
  };

  static std::string Hinted(const std::string& problem) {
    return problem + "; each line must be one JSON object such as {\"text\": \"...\"}";
  }

  static std::string Shortened(std::string_view what) {
    constexpr std::size_t kShown = 160;
    std::string text(what.substr(0, kShown));
    // The parser quotes the input, which may hold anything.
    for (char& c : text) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
    }
    if (what.size() > kShown) text += "...";
    return text;
  }

  Field* CurrentField() {
    if (depth_ != 1) return nullptr;
    for (Field* field : {&text_, &content_}) {
      if (key_ == field->name) return field;
    }
    return nullptr;
  }

  bool Value(std::string_view kind) {
    if (depth_ == 0) {
      problem_ = fmt::format("is {}, not an object", kind);
      return false;
    }
    if (Field* field = CurrentField()) field->found = kind;
    return true;
  }

  Field text_{"text"};
  Field content_{"content"};
  int64_t depth_ = 0;
  std::string key_;  // of the line's own object
  std::string problem_;
};

}  // namespace

std::optional<std::size_t> UnitLength(TextForm form, std::string_view bytes, bool complete) {
  return form == TextForm::kText ? PieceLength(bytes, complete) : LineLength(bytes, complete);
}

std::size_t ByteOrderMarkLength(std::string_view bytes) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return bytes.starts_with(kMark) ? kMark.size() : 0;
}

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

JsonlText ParseJsonlLine(std::string_view line) {
  TextFieldHandler handler;
  nlohmann::json::sax_parse(line.begin(), line.end(), &handler);
  return handler.Result();
}

}  // namespace gt
