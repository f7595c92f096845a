// Which passes the options of a job depend on, and checks of pass lists against them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gt/config/problems.h"

namespace gt {

struct Config;

// An option that has no effect, or another one, unless a pass runs.
struct PassNeed {
  std::string_view pass;
  std::string option;  // with its value: "compile.memory_policy full"
  std::string cure;    // the flag that turns the option off
  // Whether the option differs from its default. If not, compile.disable_passes may disable the pass, but
  // a list in compile.passes must still contain it.
  bool was_set = true;
};

// All needs of the job, grouped by option. Options that are on by default outside of an enabled feature
// (bucketing, generated kernels) have none: without their passes the step is slower but the same.
std::vector<PassNeed> PassNeedsOf(const Config& config);

// Reports pass lists (compile.passes, compile.disable_passes) that have unknown names, have no effect, or
// lack passes that other options need.
void CheckPassLists(const Config& config, Problems& problems);

}  // namespace gt
