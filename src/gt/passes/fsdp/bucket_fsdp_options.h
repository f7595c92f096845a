// Options of the pass bucket_fsdp.
#pragma once

#include <cstdint>

#include "gt/config/option_struct.h"

namespace gt {

struct BucketFsdpOptions {
  GT_OPTION(
      int64_t, fsdp_prefetch, 1, Within(0, 1024),
      "blocks that gathers of parameters start ahead of their own; 0 starts them at their use");
  GT_END_OPTIONS(BucketFsdpOptions);
};

}  // namespace gt
