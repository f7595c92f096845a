#include "gt/config/dialect.h"

#include <fmt/format.h>

#include "gt/base/text.h"

namespace gt {

std::string HintFor(std::string_view key, std::span<const std::string> names,
                    std::string_view prefix, const Dialect* dialect) {
  if (dialect != nullptr) {
    const std::string ours = dialect->OtherName(key);
    if (!ours.empty()) return fmt::format("; did you mean {}{}?", prefix, ours);
  }
  const std::string nearest = DidYouMean(key, names, prefix);
  return nearest.empty() && dialect != nullptr ? dialect->Hint(key, prefix) : nearest;
}

}  // namespace gt
