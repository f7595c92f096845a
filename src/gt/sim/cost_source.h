// Where the times of operators come from.
#pragma once

#include <array>
#include <string_view>

#include "gt/base/text.h"

namespace gt {

enum class CostSource { kEstimated, kMeasured };

template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<CostSource> = {"estimated", "measured"};

}  // namespace gt
