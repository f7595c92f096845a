#include "gt/job/derived_options.h"

#include <algorithm>

namespace gt {

std::optional<std::string> CostsPath(const Config& config) {
  if (!config.compile.costs_file.empty()) return config.compile.costs_file;
  if (config.compile.costs != CostSource::kMeasured) return std::nullopt;
  return config.dump_folder + "/costs.json";
}

bool Validates(const Config& config) {
  return config.validation.enable || config.validation.split > 0;
}

MoeLoad MoeLoadOf(const Config& config) {
  if (config.debug.moe_force_load_balance) return {.kind = MoeLoad::Kind::kBalanced};
  return ParseMoeLoad(config.debug.moe_load);
}

bool DumpsPasses(const Config& config, int64_t rank) {
  const StringList& ranks = config.compile.debug_graph_passes_ranks;
  return std::any_of(ranks.begin(), ranks.end(), [rank](const std::string& listed) {
    return listed == "all" || listed == std::to_string(rank);
  });
}

std::string RankListProblem(const std::vector<std::string>& ranks) {
  for (const std::string& rank : ranks) {
    const bool is_number = !rank.empty() &&
                           rank.find_first_not_of("0123456789") == std::string::npos &&
                           (rank == "0" || rank.front() != '0');
    if (rank != "all" && !is_number) return fmt::format("'{}' is neither a rank nor all", rank);
  }
  return "";
}

}  // namespace gt
