// A part of a JSON file that knows its path, so that every error names the place:
// "tokenizer.json: pre_tokenizer.pretokenizers[1].behavior must be a string, not 3".
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gt/base/error.h"

namespace gt {

class JsonPart {
 public:
  // `value` must outlive the part. `place` is the file at first.
  JsonPart(const nlohmann::json& value, std::string file, std::string path = "")
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  // Throws BadTokenizer; the message begins with the place.
  template <typename... Args>
  [[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) const {
    Fail(ErrorCode::kBadTokenizer, "{}: {}{}{}", file_, path_, path_.empty() ? "" : ": ",
         fmt::format(format, std::forward<Args>(args)...));
  }

  const nlohmann::json& value() const { return *value_; }
  const std::string& file() const { return file_; }

  bool IsNull() const { return value_->is_null(); }
  bool Has(std::string_view key) const;  // and it is not null
  JsonPart At(std::string_view key) const;
  std::vector<JsonPart> Items() const;                           // of a list
  std::vector<std::pair<std::string, JsonPart>> Fields() const;  // of an object

  std::string AsString() const;
  bool AsBool() const;
  int64_t AsInteger(int64_t low, int64_t high) const;
  char32_t AsCharacter() const;  // a string of one character

  std::string String(std::string_view key) const { return At(key).AsString(); }
  bool Bool(std::string_view key) const { return At(key).AsBool(); }
  bool Bool(std::string_view key, bool otherwise) const { return Has(key) ? Bool(key) : otherwise; }

  // The field `type`, which must be one of `known`.
  std::string Type(std::span<const std::string_view> known) const;

 private:
  [[noreturn]] void RefuseType(std::string_view wanted) const;

  const nlohmann::json* value_;
  std::string file_;
  std::string path_;
};

// Sequences of parts may hold sequences; no file needs more levels than this.
inline constexpr int kDeepestSequence = 8;

// The whole file at `path`, as text. Errors: BadTokenizer.
std::string ReadTokenizerFile(const std::string& path);

// Errors (BadTokenizer) name the file and the place.
nlohmann::json ParseTokenizerJson(std::string_view text, std::string_view file);

}  // namespace gt
