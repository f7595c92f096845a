#include "gt/base/fqn_pattern.h"

#include <cctype>
#include <vector>

namespace gt {
namespace {

std::vector<std::string_view> Components(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t dot = text.find('.');
    parts.push_back(text.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    text.remove_prefix(dot + 1);
  }
}

}  // namespace

bool MatchesFqn(std::string_view pattern, std::string_view name) {
  std::vector<std::string_view> wanted = Components(pattern), given = Components(name);
  // The last ** is the only place to come back to: an earlier one could not match less.
  size_t w = 0, g = 0, star = wanted.size(), resume = 0;
  while (g < given.size()) {
    if (w < wanted.size() && wanted[w] == "**") {
      star = w++;
      resume = g;
    } else if (w < wanted.size() && (wanted[w] == "*" || wanted[w] == given[g])) {
      ++w;
      ++g;
    } else if (star < wanted.size()) {
      w = star + 1;
      g = ++resume;
    } else {
      return false;
    }
  }
  while (w < wanted.size() && wanted[w] == "**") ++w;
  return w == wanted.size();
}

std::optional<std::string_view> MatchingPrefix(std::string_view pattern, std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (size_t dot = name.find('.');; dot = name.find('.', dot + 1)) {
    std::string_view prefix = name.substr(0, dot);
    if (MatchesFqn(pattern, prefix)) return prefix;
    if (dot == std::string_view::npos) return std::nullopt;
  }
}

std::string FqnPatternProblem(std::string_view pattern) {
  for (std::string_view part : Components(pattern)) {
    if (part.empty()) return "a component between two dots, or at an end, is empty";
    if (part == "*" || part == "**") continue;
    for (char c : part) {
      bool known = isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
      if (!known) {
        return std::string("'") + std::string(part) +
               "' is neither a name nor * nor **; names have letters, digits, _ and -";
      }
    }
  }
  return "";
}

}  // namespace gt
