// How copies of nodes that the backward computes again are called, for passes that make them and for those
// that look for their originals.
#pragma once

namespace gt {

// The copy of X is X_recomputed, a second one X_recomputed_2.
inline constexpr const char* kRecomputedSuffix = "_recomputed";

}  // namespace gt
