// Options of the pass ep_overlap_schedule.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "gt/base/text.h"
#include "gt/config/option_struct.h"

namespace gt {

// How what computes during an exchange is chosen: not at all, by structure, by predicted times.
enum class OverlapSchedule { kNone, kStructural, kCost };

template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<OverlapSchedule> = {
    "none", "structural", "cost"};

struct EpOverlapOptions {
  GT_OPTION(OverlapSchedule, schedule, OverlapSchedule::kCost, Any(),
            "how filler is chosen: by predicted times, by structure alone, or not at all");
  GT_OPTION(double, memory_headroom, -1.0, Within(-1, 10),
            "share by which the memory that the step allocates may grow, with mode cost; negative: "
            "memory_budget alone decides");
  // Counts what the step allocates and what is allocated all the time.
  GT_OPTION(
      int64_t, memory_budget, 0, AtLeast(0),
      "bytes of the device that may be in use at once, with mode cost; 0: what the job may plan "
      "with");
  // For modules that begin with their exchange.
  GT_OPTION(bool, pair_first, false, Any(),
            "with mode structural: token counts of all chunks go to the host together");
  GT_END_OPTIONS(EpOverlapOptions);
};

}  // namespace gt
