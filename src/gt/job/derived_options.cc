#include "gt/job/derived_options.h"

namespace gt {

std::optional<std::string> CostsPath(const Config& config) {
  if (!config.compile.costs_file.empty()) return config.compile.costs_file;
  if (config.compile.costs != CostSource::kMeasured) return std::nullopt;
  return config.dump_folder + "/costs.json";
}

MoeLoad MoeLoadOf(const Config& config) {
  if (config.debug.moe_force_load_balance) return {.kind = MoeLoad::Kind::kBalanced};
  return ParseMoeLoad(config.debug.moe_load);
}

}  // namespace gt
