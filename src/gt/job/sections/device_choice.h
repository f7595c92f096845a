// Where a job runs.
#pragma once

#include <array>
#include <string_view>

#include "gt/base/text.h"

namespace gt {

enum class DeviceChoice { kAuto, kCpu, kCuda };

template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<DeviceChoice> = {"auto", "cpu", "cuda"};

}  // namespace gt
