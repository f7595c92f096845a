// Options of the pass cpu_offload.
#pragma once

#include <cstdint>

#include "gt/config/option_struct.h"

namespace gt {

struct CpuOffloadOptions {
  GT_OPTION(double, cpu_offload_budget_gb, 100, Within(0, 1048576),
            "GiB of host memory to fill; 0: no limit");
  GT_OPTION(int64_t, cpu_offload_defer_n_layers, 1, Within(0, 1048576),
            "layers after its own in which a value may still be on its way to the host; 0 waits "
            "behind the last forward use");
  GT_OPTION(int64_t, cpu_offload_prefetch_n_layers, 1, Within(0, 1048576),
            "layers of the backward that a value starts back ahead of its own; 0 fetches it at its "
            "use");
  GT_END_OPTIONS(CpuOffloadOptions);
};

}  // namespace gt
