// How copies of nodes that the backward computes again are called, for passes that make them and for those
// that look for their originals.
#pragma once

#include <string_view>

namespace gt {

// The copy of X is X_recomputed, a second one X_recomputed_2.
inline constexpr const char* kRecomputedSuffix = "_recomputed";

// X for the name of a copy of X; empty: it is no copy's.
inline std::string_view OriginalName(std::string_view name) {
  const size_t suffix = name.rfind(kRecomputedSuffix);
  return suffix == std::string_view::npos ? std::string_view() : name.substr(0, suffix);
}

}  // namespace gt
