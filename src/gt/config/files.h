// Which files options stand for.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "gt/config/config.h"

namespace gt {

// The file of a cluster (comm.cluster): a path that ends in .toml, or a name in configs/clusters.
// Throws when there is no such name; a path is not looked at.
std::filesystem::path ClusterPath(const std::string& name);

// Where measured costs are read and kept (compile.costs_file); nothing when there are to be none.
std::optional<std::string> CostsPath(const Config& config);

}  // namespace gt
