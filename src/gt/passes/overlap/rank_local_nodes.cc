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

bool OnlyMoves(const Operator& op) {
  return op.work == Work::kView || op.work == Work::kClone || op.work == Work::kMove;
}

// What is waited for in ranks' shards: of a sum, all ranks have the same.
bool AwaitsShards(const Node& node) {
  if (node.op().collective != Collective::kWait || node.operand(0)->is_input()) return false;
  const Collective launched = node.operand(0)->producer()->op().collective;
  return launched != Collective::kNone && launched != Collective::kAllReduce;
}

// On its way to where it is kept a gradient may take several collectives: ranks pad, trim and cut what is
// between and after them as their shards want it. Moves that only collectives and other moves come after,
// and such a collective before.
std::vector<bool> BetweenLastCollectives(const Dependencies& dependencies) {
  const auto count = static_cast<size_t>(dependencies.count());
  std::vector<bool> leaves(count), between(count);
  for (size_t number = count; number-- > 0;) {
    const auto at = static_cast<int32_t>(number);
    const Operator& op = dependencies.node(at)->op();
    bool all = OnlyMoves(op) || op.collective != Collective::kNone;
    for (int32_t user : dependencies.UsersOf(at)) all = all && leaves[static_cast<size_t>(user)];
    leaves[number] = all;
  }
  for (size_t number = 0; number < count; ++number) {
    const auto at = static_cast<int32_t>(number);
    if (!leaves[number] || !OnlyMoves(dependencies.node(at)->op())) continue;
    for (int32_t needed : dependencies.NeededBy(at)) {
      const bool shards =
          AwaitsShards(*dependencies.node(needed)) && leaves[static_cast<size_t>(needed)];
      if (shards || between[static_cast<size_t>(needed)]) between[number] = true;
    }
  }
  return between;
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
  const std::vector<bool> between = BetweenLastCollectives(dependencies);
  for (size_t number = 0; number < count; ++number) {
    for (int32_t needed : dependencies.NeededBy(static_cast<int32_t>(number))) {
      own[number] = own[number] || own[static_cast<size_t>(needed)];
    }
    own[number] = own[number] || between[number];
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
