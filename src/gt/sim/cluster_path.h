// Where the description of a cluster is.
#pragma once

#include <filesystem>
#include <string>

namespace gt {

// The file of a cluster (comm.cluster): a path that ends in .toml, or a name in configs/clusters.
// Throws when there is no such name; a path is not looked at.
std::filesystem::path ClusterPath(const std::string& name);

}  // namespace gt
