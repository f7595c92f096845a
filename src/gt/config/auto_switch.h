// A choice between on, off and what the program finds best.
#pragma once

#include <array>
#include <string_view>

#include "gt/base/text.h"

namespace gt {

enum class AutoSwitch { kAuto, kFalse, kTrue };

template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<AutoSwitch> = {"auto", "false", "true"};

}  // namespace gt
