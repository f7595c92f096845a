// How attention is computed, and what a token attends to.
#pragma once

#include <array>
#include <string_view>

#include "gt/base/text.h"

namespace gt {

enum class AttentionBackend { kSdpa, kFlex };
enum class AttentionMask { kCausal, kBlockCausal };

template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<AttentionBackend> = {"sdpa", "flex"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<AttentionMask> = {"causal",
                                                                              "block_causal"};

}  // namespace gt
