#include "gt/passes/fsdp/reassign_fsdp_all_gathers.h"

#include <map>
#include <string>
#include <unordered_set>

#include "gt/analysis/collectives.h"
#include "gt/base/logging.h"

namespace gt {

ParameterOrigins::ParameterOrigins(Graph& graph)
    : origins_(static_cast<size_t>(graph.NumberNodes()), -1) {
  for (const Node* node : graph.nodes()) {
    // Whatever has a second operand mixes the parameter with something else.
    if (node->operand_count() != 1 || node->op().random) continue;
    const Value& operand = *node->operand(0);
    int32_t origin = -1;
    if (!operand.is_input()) {
      origin = Of(*operand.producer());
    } else if (graph.inputs()[static_cast<size_t>(operand.index())]->role ==
               InputRole::kParameter) {
      origin = operand.index();
    }
    origins_[static_cast<size_t>(node->number())] = origin;
  }
}

const PassInfo& ReassignFsdpAllGathers::info() const {
  static constexpr PassInfo kInfo = {
      .name = "reassign_fsdp_all_gathers",
      .summary = "Gives gathers of parameters a process group of their own.",
      .description =
          "Collectives of one process group run one behind the other, so a gather for the next "
          "block waits for the reductions of gradients in front of it. An all-gather whose input "
          "is "
          "made of one parameter alone moves to a new group with the same ranks if its group also "
          "serves other collectives, under this name or another. Gathers of activations stay.",
      .reads = "roles of inputs, operators, names of groups, which names stand for one group.",
      .writes = "the group's name on gathers of parameters.",
      .never = "moves, adds or removes a node.",
  };
  return kInfo;
}

bool ReassignFsdpAllGathers::RunImpl(Graph& graph, PassContext& context) {
  const auto& origins = context.Get<ParameterOrigins>(graph);
  // Ordered by name, so that groups are made in the same order on every rank.
  std::map<std::string, std::vector<Node*>> gathers;
  std::unordered_set<std::string> others;
  for (Node* node : graph.nodes()) {
    if (node->op().group_arg < 0) continue;
    const auto& name = GroupOf(*node);
    if (origins.IsParameterGather(*node)) {
      gathers[name].push_back(node);
    } else {
      others.insert(name);
    }
  }
  std::unordered_set<int64_t> shared;
  for (const std::string& name : others) shared.insert(context.groups().Find(name).identity);

  bool changed = false;
  for (const auto& [name, nodes] : gathers) {
    if (!shared.contains(context.groups().Find(name).identity)) continue;
    const std::string apart = context.groups().Separate(name, ProcessGroups::Purpose::kGathers);
    for (Node* node : nodes) node->SetArg(node->op().group_arg, apart);
    log::Debug("gathers of parameters in group {} move to {}: {} nodes", name, apart, nodes.size());
    ++groups_moved_;
    nodes_moved_ += static_cast<int64_t>(nodes.size());
    changed = true;
  }
  return changed;
}

}  // namespace gt
