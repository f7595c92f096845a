#include "gt/tokenizer/json_part.h"

#include <algorithm>

#include "gt/base/json_text.h"
#include "gt/base/read_file.h"
#include "gt/base/text.h"
#include "gt/base/utf8.h"

namespace gt {
namespace {

constexpr std::size_t kLargestTokenizer = std::size_t{256} << 20;

// What was found instead, short enough for a message.
std::string Described(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  constexpr std::size_t kShown = 60;
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

}  // namespace

void JsonPart::RefuseType(std::string_view wanted) const {
  Refuse("must be {}, not {}", wanted, Described(*value_));
}

bool JsonPart::Has(std::string_view key) const {
  if (!value_->is_object()) return false;
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

JsonPart JsonPart::At(std::string_view key) const {
  if (!value_->is_object()) RefuseType("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) Refuse("the key {} is missing", Quoted(key));
  return {*found, file_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key)};
}

std::vector<JsonPart> JsonPart::Items() const {
  if (!value_->is_array()) RefuseType("a list");
  std::vector<JsonPart> items;
  items.reserve(value_->size());
  for (const nlohmann::json& item : *value_) {
    items.emplace_back(item, file_, fmt::format("{}[{}]", path_, items.size()));
  }
  return items;
}

std::vector<std::pair<std::string, JsonPart>> JsonPart::Fields() const {
  if (!value_->is_object()) RefuseType("an object");
  std::vector<std::pair<std::string, JsonPart>> fields;
  for (const auto& [key, value] : value_->items()) fields.emplace_back(key, At(key));
  return fields;
}

std::string JsonPart::AsString() const {
  if (!value_->is_string()) RefuseType("a string");
  return value_->get<std::string>();
}

bool JsonPart::AsBool() const {
  if (!value_->is_boolean()) RefuseType("true or false");
  return value_->get<bool>();
}

int64_t JsonPart::AsInteger(int64_t low, int64_t high) const {
  const bool fits =
      value_->is_number_integer() &&
      !(value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  const int64_t number = fits ? value_->get<int64_t>() : 0;
  if (!fits || number < low || number > high) {
    RefuseType(fmt::format("a whole number from {} to {}", low, high));
  }
  return number;
}

char32_t JsonPart::AsCharacter() const {
  const std::string text = AsString();
  std::size_t position = 0;
  if (text.empty() || Utf8Length(text[0]) != text.size()) RefuseType("a single character");
  return NextCharacter(text, position);
}

std::string JsonPart::Type(std::span<const std::string_view> known) const {
  const std::string type = String("type");
  if (std::find(known.begin(), known.end(), type) == known.end()) {
    At("type").Refuse("gt does not know {}; it knows {}", Quoted(type), Join(known, ", "));
  }
  return type;
}

std::string ReadTokenizerFile(const std::string& path) {
  try {
    return ReadWholeFile(path, kLargestTokenizer);
  } catch (const UnreadableFile& problem) {
    Fail(ErrorCode::kBadTokenizer, "{} cannot be read: {}", path, problem.what());
  }
}

nlohmann::json ParseTokenizerJson(std::string_view text, std::string_view file) {
  try {
    return ParseJson(text, {.bytes = kLargestTokenizer, .values = std::size_t{1} << 24});
  } catch (const BadJson& problem) {
    Fail(ErrorCode::kBadTokenizer, "{}: this is not JSON: {}", file, problem.what());
  }
}

}  // namespace gt
