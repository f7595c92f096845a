#include "gt/base/fqn_pattern.h"

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

}  // namespace gt
