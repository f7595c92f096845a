// [metrics] and [profiling]: what a run reports.
#pragma once

#include <cstdint>
#include <string>

#include "gt/config/option_struct.h"

namespace gt {

struct MetricsSection {
  GT_OPTION(int64_t, log_freq, 1, AtLeast(1), "print a progress line every so many steps");
  GT_OPTION(bool, hashes, false, Any(),
            "write hashes of all gradients, parameters and buffers of every step to metrics.jsonl, "
            "to see where two runs part");
  GT_OPTION(bool, enable_tensorboard, false, Any(),
            "write TensorBoard event files as well, to dump_folder/tb");
  GT_END_OPTIONS(MetricsSection);
};

struct ProfilingSection {
  GT_OPTION(std::string, steps, "", Any(),
            "steps to profile, such as 5 or 5-7,20: each gives dump_folder/profile/step_N.json for "
            "ui.perfetto.dev");
  GT_END_OPTIONS(ProfilingSection);
};

}  // namespace gt
