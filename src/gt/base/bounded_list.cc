#include "gt/base/bounded_list.h"

#include <algorithm>
#include <vector>

#include "gt/base/text.h"

namespace gt {
namespace {

// Names come from files and have any length.
std::string Shortened(const std::string& part) {
  constexpr std::size_t kShown = 400;
  if (part.size() <= kShown) return part;
  std::size_t end = kShown;
  while (end > 0 && (static_cast<unsigned char>(part[end]) & 0xC0) == 0x80)
    --end;  // in a character
  return part.substr(0, end) + "...";
}

}  // namespace

std::string JoinFirst(std::span<const std::string> parts, std::string_view separator) {
  constexpr std::size_t kShown = 20;
  const std::size_t shown = std::min(parts.size(), kShown);
  std::vector<std::string> lines;
  for (const std::string& part : parts.first(shown)) lines.push_back(Shortened(part));
  if (parts.size() > shown) {
    lines.push_back("and " + WithThousands(static_cast<int64_t>(parts.size() - shown)) + " more");
  }
  return Join(lines, separator);
}

}  // namespace gt
