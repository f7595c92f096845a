// Reads placement problems in the format of the contest on intra-operator parallelism of ASPLOS 2025
// (google/iopddl): nodes with live intervals [begin, end), costs and usages by strategy, edges with
// costs by pairs of strategies (row-major, the first node's strategies are the rows), and a limit on
// the usage. Costs of 1e18 and more forbid.
#pragma once

#include <filesystem>
#include <string_view>

#include "gt/placement/solver/label_problem.h"

namespace gt::placement {

// Throw BadPlacementProblem, naming the file and the place in it.
LabelProblem ReadIopddl(const std::filesystem::path& path);
LabelProblem ParseIopddl(std::string_view text, std::string_view file);

}  // namespace gt::placement
