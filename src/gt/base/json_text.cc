#include "gt/base/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "gt/base/text.h"

namespace gt {
namespace {

// Texts without line breaks are common (metrics, messages), so the column is needed too.
std::string PlaceText(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const std::size_t line_start = before.rfind('\n') + 1;  // 0 if there is none
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     at - line_start + 1);
}

// Counts brackets and commas outside of strings, without any other look at the grammar. Up to the
// first mistake of a text the counts are exact, and after it the parser refuses the text anyway.
void RequireWithin(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    throw BadJson(fmt::format("{} bytes, but at most {} are read",
                              WithThousands(static_cast<int64_t>(text.size())),
                              WithThousands(static_cast<int64_t>(limits.bytes))));
  }
  int depth = 0;
  std::size_t values = 1, keys = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i) {
          if (text[i] == '\\') ++i;
        }
        break;
      case '[':
      case '{':
        ++values;
        if (++depth > limits.depth) {
          throw BadJson(fmt::format("{}: lists and objects are nested more than {} levels deep",
                                    PlaceText(text, i), limits.depth));
        }
        break;
      case ']':
      case '}':
        --depth;
        break;
      case ',':
        ++values;
        break;
      case ':':
        ++keys;
        break;
      case '\0':  // the parser would take it for the end
        throw BadJson(fmt::format("{}: there is a zero byte", PlaceText(text, i)));
      default:
        break;
    }
    const bool has_many_keys = keys > limits.keys;
    if (values > limits.values || has_many_keys) {
      const std::size_t most = has_many_keys ? limits.keys : limits.values;
      throw BadJson(fmt::format("{}: more than {} {}", PlaceText(text, i),
                                WithThousands(static_cast<int64_t>(most)),
                                has_many_keys ? "keys" : "values"));
    }
  }
}

// "[json.exception.parse_error.101] parse error at line 1, column 3: what" becomes "line 1, column 3:
// what". The parser quotes the input, which may be long and hold anything.
std::string Readable(std::string_view what) {
  constexpr std::string_view kParseError = "parse error at ";
  if (const auto end = what.find("] "); what.starts_with('[') && end != what.npos) {
    what.remove_prefix(end + 2);
  }
  if (what.starts_with(kParseError)) what.remove_prefix(kParseError.size());
  constexpr std::size_t kShown = 240;
  std::string text(what.substr(0, kShown));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return what.size() > kShown ? text + "..." : text;
}

template <typename Json>
Json Parse(std::string_view text, const JsonLimits& limits) {
  RequireWithin(text, limits);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw BadJson(Readable(error.what()));
  }
}

template <typename Json>
std::string Short(const Json& value) {
  constexpr std::size_t kShown = 100;
  // Without characters beyond ASCII, so that none is cut in two.
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

}  // namespace

nlohmann::json ParseJson(std::string_view text, const JsonLimits& limits) {
  return Parse<nlohmann::json>(text, limits);
}

nlohmann::ordered_json ParseOrderedJson(std::string_view text, const JsonLimits& limits) {
  return Parse<nlohmann::ordered_json>(text, limits);
}

std::optional<nlohmann::json> ParseJsonIfGood(std::string_view text, const JsonLimits& limits) {
  try {
    return ParseJson(text, limits);
  } catch (const BadJson&) {
    return std::nullopt;
  }
}

std::string ShortJson(const nlohmann::json& value) { return Short(value); }

std::string ShortJson(const nlohmann::ordered_json& value) { return Short(value); }

}  // namespace gt
