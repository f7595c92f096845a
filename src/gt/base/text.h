// Small helpers for text that people read: splitting, wrapping, quoting, and finding the name that
// was probably meant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gt {

std::string_view Trim(std::string_view text);

// "a,,b" gives {"a", "", "b"}; the empty text gives nothing, so that "--list=" is an empty list.
std::vector<std::string> Split(std::string_view text, char separator);

std::string Join(std::span<const std::string> parts, std::string_view separator);
std::string Join(std::span<const std::string_view> parts, std::string_view separator);

// In double quotes, with control characters, quotes and backslashes escaped. It is a valid TOML
// basic string and keeps terminal escapes out of error messages. Bytes of UTF-8 sequences pass as
// they are.
std::string Quoted(std::string_view text);

// "1 step", "1,200 steps". For nouns whose plural ends in s.
std::string Counted(int64_t number, std::string_view noun);
// "1,200"
std::string WithThousands(int64_t number);

// The text as one word of a shell: for paths in commands that messages suggest. Quoted only where
// the shell would not hand it on as it is.
std::string ShellWord(std::string_view text);

// Breaks at spaces so that no line exceeds `width` (a longer word gets its own line). Lines after
// the first start with `indent` spaces, which count.
std::string Wrapped(std::string_view text, std::size_t width, std::size_t indent);

// "true" or "false", in any case.
std::optional<bool> BooleanFromText(std::string_view text);

// "2026-11-16 14:51:24", where this machine is.
std::string LocalTimeText(std::time_t time);

// Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other.
std::size_t EditDistance(std::string_view a, std::string_view b);

// The candidate that was probably meant by `name`, if any is near enough to be worth suggesting.
// Letter case and '-' against '_' do not count. Dotted names are also compared by their last
// component, since forgetting or mistaking the section is as common as a typo: "lr" means
// "optimizer.lr". Different numbers are not a typo ("7B" and "1B"), names of one or two letters must
// match exactly, and an "enable" name is never suggested for a "disable" name.
std::optional<std::string> NearestName(std::string_view name,
                                       std::span<const std::string> candidates);

// "; did you mean --training.steps?" with `prefix` "--", or nothing. Meant to end an error message.
std::string DidYouMean(std::string_view name, std::span<const std::string> candidates,
                       std::string_view prefix = "");

// The names of an enum as users write them, in the order of its enumerators, which count from 0
// without gaps:
//   template <> inline constexpr std::array<std::string_view, 2> kEnumNames<Color> = {"red",
//   "blue"};
template <typename E>
inline constexpr std::array<std::string_view, 0> kEnumNames = {};

template <typename E>
requires std::is_enum_v<E>
constexpr std::string_view EnumName(E value) {
  return kEnumNames<E>[static_cast<std::size_t>(value)];
}

template <typename E>
requires std::is_enum_v<E>
constexpr std::optional<E> EnumFromName(std::string_view name) {
  for (std::size_t i = 0; i < kEnumNames<E>.size(); ++i) {
    if (kEnumNames<E>[i] == name) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace gt
