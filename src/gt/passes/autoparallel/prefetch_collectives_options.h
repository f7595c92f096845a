// Options of the pass prefetch_collectives.
#pragma once

#include <cstdint>

#include "gt/config/option_struct.h"

namespace gt {

struct PrefetchCollectivesOptions {
  GT_OPTION(int64_t, max_compute_pre_fetch, 10, Within(0, 1e9),
            "matrix products and attention by which a gather of parameters starts ahead of its "
            "wait, at the most");
  GT_OPTION(double, max_in_flight_gb, 2.0, Within(0, 1048576),
            "GiB that collectives may have under way at the same time");
  GT_END_OPTIONS(PrefetchCollectivesOptions);
};

}  // namespace gt
