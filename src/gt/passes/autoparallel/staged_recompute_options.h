// Options of the pass staged_recompute.
#pragma once

#include "gt/config/option_struct.h"

namespace gt {

struct StagedRecomputeOptions {
  GT_OPTION(double, ac_stage_size_gb, 0.0, Within(0, 1048576),
            "GiB that the forward produces from one cut to the next; 0: the square root of what it "
            "produces in all");
  GT_END_OPTIONS(StagedRecomputeOptions);
};

}  // namespace gt
