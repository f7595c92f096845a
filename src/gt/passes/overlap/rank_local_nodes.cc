#include "gt/passes/overlap/rank_local_nodes.h"

#include "gt/sim/queues.h"

namespace gt {
namespace {

std::vector<bool> BeforeGathers(const Graph& graph, const Dependencies& dependencies) {
  const auto count = static_cast<size_t>(dependencies.count());
  std::vector<bool> of_parameters(count), before(count);
  for (size_t number = 0; number < count; ++number) {
    const Node& node = *dependencies.node(static_cast<int32_t>(number));
    bool all = node.operand_count() > 0 && !node.op().random;
    for (int32_t i = 0; i < node.operand_count() && all; ++i) {
      const Value& operand = *node.operand(i);
      if (operand.is_input()) {
        auto index = static_cast<size_t>(operand.index());
        all = graph.inputs()[index]->role == InputRole::kParameter;
      } else {
        all = of_parameters[static_cast<size_t>(operand.producer()->number())];
      }
    }
    of_parameters[number] = all;
    // Where a parameter is gathered in two steps, ranks pad what is between them as their shards want it.
    before[number] = all && node.op().collective == Collective::kAllGather;
  }
  for (size_t number = count; number-- > 0;) {
    if (!before[number]) continue;
    for (int32_t needed : dependencies.NeededBy(static_cast<int32_t>(number))) {
      before[static_cast<size_t>(needed)] = true;
    }
  }
  return before;
}

// A gradient shard is the result of a reduce-scatter after which at most replicas are summed. After
// reduce-scatters of activations (tensor parallelism) other collectives follow.
std::vector<bool> AfterReductions(const Dependencies& dependencies) {
  const auto count = static_cast<size_t>(dependencies.count());
  std::vector<bool> quiet(count), own(count);
  for (size_t number = count; number-- > 0;) {
    const auto at = static_cast<int32_t>(number);
    const Node& node = *dependencies.node(at);
    bool behind = true;
    for (int32_t user : dependencies.UsersOf(at))
      behind = behind && quiet[static_cast<size_t>(user)];
    own[number] = behind && node.op().collective == Collective::kReduceScatter;
    const bool launches = !QueueOf(node).empty();
    quiet[number] = behind && (!launches || node.op().collective == Collective::kAllReduce);
  }
  for (size_t number = 0; number < count; ++number) {
    for (int32_t needed : dependencies.NeededBy(static_cast<int32_t>(number))) {
      own[number] = own[number] || own[static_cast<size_t>(needed)];
    }
  }
  return own;
}

}  // namespace

RankLocalNodes::RankLocalNodes(const Graph& graph, const Dependencies& dependencies)
    : before_gather(BeforeGathers(graph, dependencies)), own(AfterReductions(dependencies)) {
  for (size_t number = 0; number < own.size(); ++number) {
    const Node& node = *dependencies.node(static_cast<int32_t>(number));
    if (before_gather[number] && QueueOf(node).empty()) own[number] = true;
  }
}

}  // namespace gt
