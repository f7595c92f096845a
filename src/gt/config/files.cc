#include "gt/config/files.h"

#include "gt/base/error.h"
#include "gt/base/resources.h"

namespace gt {

std::filesystem::path ClusterPath(const std::string& name) {
  std::filesystem::path path = name;
  if (path.extension() == ".toml") return path;
  try {
    return ResourcePath("configs/clusters/" + name + ".toml");
  } catch (const Error&) {
    Fail(ErrorCode::kBadCluster,
         "there is no cluster '{}' (configs/clusters/{}.toml); give --comm.cluster one of the "
         "names in "
         "that folder, or a file that ends in .toml",
         name, name);
  }
}

std::optional<std::string> CostsPath(const Config& config) {
  if (!config.compile.costs_file.empty()) return config.compile.costs_file;
  if (config.compile.costs != CostSource::kMeasured) return std::nullopt;
  return config.dump_folder + "/costs.json";
}

}  // namespace gt
