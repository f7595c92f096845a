#include "gt/passes/overlap/separate_count_exchanges.h"

#include <map>
#include <string>
#include <vector>

#include "gt/analysis/collectives.h"

namespace gt {

const PassInfo& SeparateCountExchanges::info() const {
  static constexpr PassInfo kInfo = {
      .name = "separate_count_exchanges",
      .summary = "Gives exchanges of token counts a process group of their own.",
      .description =
          "Counts are all-to-alls of integers. Where a group has them beside all-to-alls of "
          "tokens, "
          "they move to a new group with the same ranks in the same order: a chunk's counts then "
          "arrive while another chunk's tokens are on their way, and its own tokens are next in "
          "the "
          "queue.",
      .reads = "operators, dtypes, names of groups.",
      .writes = "the group's name on all-to-alls of integers.",
      .never = "moves, adds or removes a node.",
  };
  return kInfo;
}

bool SeparateCountExchanges::RunImpl(Graph& graph, PassContext& context) {
  struct Uses {
    std::vector<Node*> counts;
    bool tokens = false;
  };
  std::map<std::string, Uses> by_name;  // in order: groups are made in the same order on every rank
  for (Node* node : graph.nodes()) {
    if (node->op().collective != Collective::kAllToAll) continue;
    Uses& uses = by_name[GroupOf(*node)];
    if (IsIntegral(node->operand(0)->type().dtype)) {
      uses.counts.push_back(node);
    } else {
      uses.tokens = true;
    }
  }
  bool changed = false;
  for (const auto& [name, uses] : by_name) {
    if (uses.counts.empty() || !uses.tokens) continue;
    const std::string apart = context.groups().Separate(name, ProcessGroups::Purpose::kCounts);
    for (Node* node : uses.counts) node->SetArg(node->op().group_arg, apart);
    nodes_moved_ += static_cast<int64_t>(uses.counts.size());
    changed = true;
  }
  return changed;
}

}  // namespace gt
