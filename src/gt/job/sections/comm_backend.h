// What carries collectives from rank to rank.
#pragma once

#include <array>
#include <string_view>

#include "gt/base/text.h"

namespace gt {

enum class CommBackend { kAuto, kGloo, kNccl, kFake, kEmulated };

template <>
inline constexpr std::array<std::string_view, 5> kEnumNames<CommBackend> = {"auto", "gloo", "nccl",
                                                                            "fake", "emulated"};

}  // namespace gt
