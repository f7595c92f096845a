#include "gt/config/option.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace gt {
namespace {

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
// Clang before 17 does not deduce it for aggregates.
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

template <typename Number>
std::optional<Number> ParseWhole(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string FloatText(double value) {
  std::string text = fmt::format("{}", value);
  // TOML tells 1 from 1.0.
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string ListText(const StringList& list) {
  std::vector<std::string> quoted;
  for (const std::string& item : list) quoted.push_back(Quoted(item));
  return fmt::format("[{}]", Join(quoted, ", "));
}

std::string TextOf(const Limit& limit) {
  if (limit.min && limit.max) {
    return fmt::format("in {}{}, {}{}", limit.min_excluded ? '(' : '[', *limit.min, *limit.max,
                       limit.max_excluded ? ')' : ']');
  }
  if (limit.min) return fmt::format("{} {}", limit.min_excluded ? ">" : ">=", *limit.min);
  if (limit.max) return fmt::format("{} {}", limit.max_excluded ? "<" : "<=", *limit.max);
  return "";
}

bool Allows(const Limit& limit, double value) {
  if (!std::isfinite(value)) return false;
  if (limit.min && (limit.min_excluded ? value <= *limit.min : value < *limit.min)) return false;
  if (limit.max && (limit.max_excluded ? value >= *limit.max : value > *limit.max)) return false;
  return true;
}

bool Allows(const Limit&, bool) { return true; }
bool Allows(const Limit& limit, std::int64_t value) {
  return Allows(limit, static_cast<double>(value));
}
bool Allows(const Limit& limit, const std::string& value) {
  return !limit.not_empty || !value.empty();
}
bool Allows(const Limit& limit, const StringList& value) {
  return !limit.not_empty || !value.empty();
}

std::string ValueText(bool value) { return value ? "true" : "false"; }
std::string ValueText(std::int64_t value) { return fmt::format("{}", value); }
std::string ValueText(double value) { return FloatText(value); }
std::string ValueText(const std::string& value) { return Quoted(value); }
std::string ValueText(const StringList& value) { return ListText(value); }

std::optional<bool> FromText(std::string_view text, bool*) { return BooleanFromText(text); }
std::optional<std::int64_t> FromText(std::string_view text, std::int64_t*) {
  return ParseWhole<std::int64_t>(text);
}
std::optional<double> FromText(std::string_view text, double*) { return ParseWhole<double>(text); }
std::optional<std::string> FromText(std::string_view text, std::string*) {
  return std::string(text);
}
StringList WholeItem(std::string_view text, const Limit& limit) {
  if (limit.paths && text.empty()) return {};
  return {std::string(text)};
}

std::optional<StringList> FromText(std::string_view text, const Limit& limit) {
  if (limit.whole_items) return WholeItem(text, limit);
  StringList list = Split(text, ',');
  for (std::string& item : list) {
    item = std::string(Trim(item));
    if (item.empty()) return std::nullopt;  // "a,,b" is a slip, not a wish for an empty name
  }
  return list;
}

// No conversions but integer to float: steps = 20.0 or seed = "42" is more likely a mistake than a
// wish.
template <typename T>
std::optional<T> FromToml(const toml::Value& value, T*) {
  if (const T* exact = std::get_if<T>(&value.data)) return *exact;
  return std::nullopt;
}
std::optional<double> FromToml(const toml::Value& value, double*) {
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
    return static_cast<double>(*integer);
  }
  if (const auto* number = std::get_if<double>(&value.data)) return *number;
  return std::nullopt;
}
std::optional<StringList> FromToml(const toml::Value& value, const Limit& limit) {
  const auto* alone = std::get_if<std::string>(&value.data);
  if (alone != nullptr && limit.whole_items) return WholeItem(*alone, limit);
  const auto* array = std::get_if<toml::Array>(&value.data);
  if (array == nullptr) return std::nullopt;
  StringList list;
  for (const toml::Value& item : *array) {
    const auto* text = std::get_if<std::string>(&item.data);
    if (text == nullptr) return std::nullopt;
    if (!limit.paths || !text->empty()) list.push_back(*text);
  }
  return list;
}

// Names are case-sensitive, except true and false.
std::optional<std::size_t> IndexOf(const EnumBinding& e, std::string_view name) {
  const std::optional<bool> boolean = BooleanFromText(name);
  const std::string_view wanted = !boolean ? name : *boolean ? "true" : "false";
  const auto found = std::find(e.names.begin(), e.names.end(), wanted);
  if (found == e.names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - e.names.begin());
}

void SetEnum(const EnumBinding& binding, std::string_view name, const std::string& where,
             Problems& problems) {
  if (const std::optional<std::size_t> index = IndexOf(binding, name)) {
    binding.set(*index);
    return;
  }
  const std::vector<std::string> names(binding.names.begin(), binding.names.end());
  problems.Add(ErrorCode::kBadOptionValue, "{}: expected one of {}, got {}{}", where,
               Join(names, ", "), Quoted(name), DidYouMean(name, names));
}

}  // namespace

Option::Option(std::string path, Binding binding, Limit limit, std::string help)
    : path_(std::move(path)),
      binding_(std::move(binding)),
      limit_(limit),
      help_(std::move(help)),
      default_text_(ShownText()) {}

bool Option::is_flag() const {
  if (const auto* choice = std::get_if<EnumBinding>(&binding_)) {
    return IndexOf(*choice, "true").has_value();
  }
  return std::holds_alternative<bool*>(binding_);
}

bool Option::Names(std::string_view text) const {
  if (const auto* choice = std::get_if<EnumBinding>(&binding_)) {
    return IndexOf(*choice, text).has_value();
  }
  return std::holds_alternative<bool*>(binding_) && BooleanFromText(text).has_value();
}

std::string Option::LimitText() const { return TextOf(limit_); }

std::string Option::Expected() const {
  std::string limit = LimitText();
  if (!limit.empty()) limit.insert(0, " ");
  return std::visit(
      Overloaded{
          [](const bool*) -> std::string { return "true or false"; },
          [&](const std::int64_t*) { return "an integer" + limit; },
          [&](const double*) { return "a number" + limit; },
          [this](const std::string*) -> std::string {
            return limit_.not_empty ? "text that is not empty" : "text";
          },
          [this](const StringList*) -> std::string {
            if (limit_.paths) return "a path or a list of paths";
            if (limit_.whole_items) return "a text or a list of texts";
            return limit_.not_empty ? "a list of at least one name" : "a list of names";
          },
          [](const EnumBinding& e) { return fmt::format("one of {}", Join(e.names, ", ")); },
      },
      binding_);
}

std::string Option::Placeholder() const {
  return std::visit(Overloaded{
                        [](const bool*) -> std::string { return ""; },
                        [](const std::int64_t*) -> std::string { return "N"; },
                        [](const double*) -> std::string { return "X"; },
                        [](const std::string*) -> std::string { return "TEXT"; },
                        [this](const StringList*) -> std::string {
                          if (limit_.paths) return "PATH";
                          return limit_.whole_items ? "TEXT" : "A,B,...";
                        },
                        [](const EnumBinding& e) { return Join(e.names, "|"); },
                    },
                    binding_);
}

std::string Option::ShownText() const {
  const auto or_empty = [](const std::string& text) { return text.empty() ? "empty" : text; };
  return std::visit(Overloaded{
                        [](const EnumBinding& e) { return std::string(e.names[e.get()]); },
                        [&](const std::string* text) { return or_empty(*text); },
                        [&](const StringList* list) { return or_empty(Join(*list, ",")); },
                        [](const auto* variable) { return ValueText(*variable); },
                    },
                    binding_);
}

std::string Option::TomlText() const {
  return std::visit(Overloaded{
                        [](const EnumBinding& e) { return Quoted(e.names[e.get()]); },
                        [](const auto* variable) { return ValueText(*variable); },
                    },
                    binding_);
}

void Option::SetFromText(std::string_view text, const std::string& where, bool append,
                         Problems& problems) {
  std::visit(Overloaded{
                 [&](const EnumBinding& e) { SetEnum(e, text, where, problems); },
                 [&](auto* variable) {
                   constexpr bool kIsList = std::is_same_v<decltype(variable), StringList*>;
                   auto value = [&] {
                     if constexpr (kIsList)
                       return FromText(text, limit_);
                     else
                       return FromText(text, variable);
                   }();
                   if (!value) {
                     problems.Add(ErrorCode::kBadOptionValue, "{}: expected {}, got {}", where,
                                  Expected(), Quoted(text));
                   } else if (!Allows(limit_, *value)) {
                     problems.Add(ErrorCode::kOptionOutOfRange,
                                  "{}: {} is out of range; expected {}", where, Quoted(text),
                                  Expected());
                   } else if constexpr (kIsList) {
                     if (append) value->insert(value->begin(), variable->begin(), variable->end());
                     *variable = std::move(*value);
                   } else {
                     *variable = std::move(*value);
                   }
                 },
             },
             binding_);
}

void Option::SetFromToml(const toml::Value& value, const std::string& where, Problems& problems) {
  const auto wrong_type = [&] {
    problems.Add(ErrorCode::kBadOptionValue, "{}: expected {}, got {}", where, Expected(),
                 toml::Describe(value));
  };
  std::visit(Overloaded{
                 [&](const EnumBinding& e) {
                   if (const auto* name = std::get_if<std::string>(&value.data)) {
                     SetEnum(e, *name, where, problems);
                   } else if (const auto* flag = std::get_if<bool>(&value.data);
                              flag != nullptr && IndexOf(e, ValueText(*flag))) {
                     // For choices such as auto, false, true.
                     SetEnum(e, ValueText(*flag), where, problems);
                   } else {
                     wrong_type();
                   }
                 },
                 [&](auto* variable) {
                   auto converted = [&] {
                     if constexpr (std::is_same_v<decltype(variable), StringList*>)
                       return FromToml(value, limit_);
                     else
                       return FromToml(value, variable);
                   }();
                   if (!converted) {
                     wrong_type();
                   } else if (!Allows(limit_, *converted)) {
                     problems.Add(ErrorCode::kOptionOutOfRange,
                                  "{}: {} is out of range; expected {}", where,
                                  ValueText(*converted), Expected());
                   } else {
                     *variable = std::move(*converted);
                   }
                 },
             },
             binding_);
}

void Option::Check(const std::string& where, Problems& problems) const {
  std::visit(Overloaded{
                 [&](const EnumBinding& e) {
                   if (e.get() < e.names.size()) return;
                   problems.Add(ErrorCode::kOptionOutOfRange,
                                "{}: value {} has no name; expected {}", where, e.get(),
                                Expected());
                 },
                 [&](const auto* variable) {
                   if (Allows(limit_, *variable)) return;
                   problems.Add(ErrorCode::kOptionOutOfRange, "{}: {} is out of range; expected {}",
                                where, ValueText(*variable), Expected());
                 },
             },
             binding_);
}

}  // namespace gt
