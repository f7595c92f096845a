// An option is a name, a help line and a limit bound to a variable. Flags, config keys, help text
// and written config files all come from it, so a value is described once. It knows nothing of
// Config: the flags of a subcommand are options bound to local variables.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gt/base/text.h"
#include "gt/config/problems.h"
#include "gt/config/toml.h"

namespace gt {

using StringList = std::vector<std::string>;

// Which values of the right type are allowed. Numbers that are not finite never are.
struct Limit {
  std::optional<double> min = std::nullopt;
  std::optional<double> max = std::nullopt;
  bool min_excluded = false;
  bool max_excluded = false;
  bool not_empty = false;
  // Of a list: each time the flag is given, its text is one item, commas and all. A config file may
  // write a list of one item as the item alone.
  bool whole_items = false;
  // Of such a list: the items are paths. An empty text is none, so that "--name=" is an empty list.
  bool paths = false;
};

constexpr Limit Any() { return {}; }
constexpr Limit AtLeast(double min) { return {.min = min}; }
constexpr Limit Above(double min) { return {.min = min, .min_excluded = true}; }
constexpr Limit Within(double min, double max) { return {.min = min, .max = max}; }
// From min up to, but without, max.
constexpr Limit WithinBelow(double min, double max) {
  return {.min = min, .max = max, .max_excluded = true};
}
constexpr Limit NotEmpty() { return {.not_empty = true}; }
constexpr Limit WholeItems() { return {.whole_items = true}; }
constexpr Limit Paths() { return {.whole_items = true, .paths = true}; }

// An enum variable of any type, seen as an index into the names of its values.
struct EnumBinding {
  std::span<const std::string_view> names;
  std::function<std::size_t()> get;
  std::function<void(std::size_t)> set;
};

using Binding = std::variant<bool*, std::int64_t*, double*, std::string*, StringList*, EnumBinding>;

template <typename T>
Binding Bind(T* variable) {
  if constexpr (std::is_enum_v<T>) {
    static_assert(!kEnumNames<T>.empty(), "specialize kEnumNames for this enum");
    return EnumBinding{kEnumNames<T>, [variable] { return static_cast<std::size_t>(*variable); },
                       [variable](std::size_t i) { *variable = static_cast<T>(i); }};
  } else {
    return variable;
  }
}

class Option {
 public:
  // `path` is the name without dashes, such as "training.steps". The value the variable has now is
  // shown as the default in the help. The variable must outlive the option.
  template <typename T>
  Option(std::string path, T* variable, Limit limit, std::string help)
      : Option(std::move(path), Bind(variable), limit, std::move(help)) {}
  Option(std::string path, Binding binding, Limit limit, std::string help);

  const std::string& path() const { return path_; }
  const std::string& help() const { return help_; }
  const Binding& binding() const { return binding_; }
  // May be without a value, which then is true: booleans, and choices such as auto, false, true.
  bool is_flag() const;
  // Whether the text is one of the values that it can have, for booleans and choices.
  bool Names(std::string_view text) const;
  bool is_list() const { return std::holds_alternative<StringList*>(binding_); }

  // "an integer >= 1", "one of eager, aot_fx_trace".
  std::string Expected() const;
  // ">= 1", "in [0, 1)", or nothing.
  std::string LimitText() const;
  // What the help shows in place of the value: "N", "eager|aot_fx_trace"; empty for booleans.
  std::string Placeholder() const;
  // The value at construction as a flag would be given it.
  const std::string& default_text() const { return default_text_; }

  // The value in TOML syntax. Floats are written so that reading them back gives the same bits.
  std::string TomlText() const;

  // These leave the variable alone and add a problem that starts with `where` if the value does not
  // fit. With `append`, a list grows and everything else ignores it.
  void SetFromText(std::string_view text, const std::string& where, bool append,
                   Problems& problems);
  void SetFromToml(const toml::Value& value, const std::string& where, Problems& problems);
  // Checks the value the variable has.
  void Check(const std::string& where, Problems& problems) const;

 private:
  std::string ShownText() const;

  std::string path_;
  Binding binding_;
  Limit limit_;
  std::string help_;
  std::string default_text_;
};

// Options that are shown together: a section of the config file, or the flags of a command.
struct OptionGroup {
  std::string name;
  std::string help;
  std::vector<Option> options;
};

}  // namespace gt
