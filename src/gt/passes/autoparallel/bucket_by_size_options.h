// Options of the pass bucket_by_size.
#pragma once

#include <cstdint>

#include "gt/config/option_struct.h"

namespace gt {

struct BucketBySizeOptions {
  GT_OPTION(int64_t, bucket_cap_mb, 2000, Within(1, 1048576), "most MiB that are packed together");
  GT_OPTION(int64_t, max_topo_span, 1500, Within(0, 1e9),
            "most nodes from the first to the last collective of a bucket; 0: any number");
  GT_END_OPTIONS(BucketBySizeOptions);
};

}  // namespace gt
