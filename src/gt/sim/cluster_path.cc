#include "gt/sim/cluster_path.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/resources.h"
#include "gt/base/text.h"

namespace gt {
namespace {

constexpr const char* kClusters = "configs/clusters";

std::vector<std::string> ClusterNames() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(ResourcePath(kClusters), ignored)) {
    if (file.path().extension() == ".toml") names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void FailUnknownCluster(const std::string& name) {
  std::vector<std::string> names;
  try {
    names = ClusterNames();
  } catch (const Error& error) {  // nothing that comes with the program is here
    Fail(ErrorCode::kBadCluster, "--comm.cluster {}: {}", name, error.message());
  }
  Fail(ErrorCode::kBadCluster,
       "--comm.cluster: there is no cluster '{}'{}; known are {}, and any file that ends in .toml",
       name, DidYouMean(name, names), Join(names, ", "));
}

}  // namespace

std::filesystem::path ClusterPath(const std::string& name) {
  std::filesystem::path path = name;
  if (path.extension() == ".toml") return path;
  try {
    return ResourcePath(fmt::format("{}/{}.toml", kClusters, name));
  } catch (const Error&) {
    FailUnknownCluster(name);
  }
}

}  // namespace gt
