// What several options say together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gt/job/config.h"
#include "gt/sim/moe_load.h"

namespace gt {

// Where measured costs are read and kept (compile.costs_file); nothing when there are to be none.
std::optional<std::string> CostsPath(const Config& config);

// Whether a loss on data that is not trained on is computed: validation.enable, or validation.split.
bool Validates(const Config& config);

// Of debug.moe_load and debug.moe_force_load_balance; the configuration is valid.
MoeLoad MoeLoadOf(const Config& config);

// Whether the rank is among compile.debug_graph_passes_ranks.
bool DumpsPasses(const Config& config, int64_t rank);

// What is wrong with a list of ranks; empty: nothing.
std::string RankListProblem(const std::vector<std::string>& ranks);

}  // namespace gt
