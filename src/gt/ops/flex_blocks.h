// How the kernels of gt::flex_attention cut queries and keys into blocks, whose scores are in memory at the
// same time.
#pragma once

#include <cstdint>

namespace gt {

inline constexpr int64_t kFlexQueryBlock = 128, kFlexKeyBlock = 512;
// Blocks are made smaller when there are so many heads that scores of one would take much memory.
inline constexpr int64_t kMostFlexScores = int64_t{1} << 24, kLeastFlexQueries = 16;

}  // namespace gt
