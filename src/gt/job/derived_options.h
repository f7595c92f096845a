// What several options say together.
#pragma once

#include <optional>
#include <string>

#include "gt/job/config.h"
#include "gt/sim/moe_load.h"

namespace gt {

// Where measured costs are read and kept (compile.costs_file); nothing when there are to be none.
std::optional<std::string> CostsPath(const Config& config);

// Of debug.moe_load and debug.moe_force_load_balance; the configuration is valid.
MoeLoad MoeLoadOf(const Config& config);

}  // namespace gt
