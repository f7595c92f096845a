#include "gt/passes/overlap/isolate_ep_process_group.h"

#include <fmt/ranges.h>

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "gt/analysis/collectives.h"
#include "gt/base/error.h"
#include "gt/base/logging.h"

namespace gt {
namespace {

// Who uses which group. Ordered by name, so that groups are made in the same order on every rank.
struct Usage {
  std::map<std::string, std::vector<Node*>> exchanges;  // of tokens
  std::map<std::string, const Node*> others;            // one example of each
};

Usage Scan(const Graph& graph) {
  Usage usage;
  for (Node* node : graph.nodes()) {
    if (node->op().group_arg < 0) continue;
    const auto& name = GroupOf(*node);
    if (node->op().collective == Collective::kAllToAll) {
      usage.exchanges[name].push_back(node);
    } else {
      usage.others.try_emplace(name, node);
    }
  }
  return usage;
}

// The groups that other collectives use, by identity.
class OtherGroups {
 public:
  OtherGroups(ProcessGroups& groups, const Usage& usage) {
    for (const auto& [name, node] : usage.others) {
      ProcessGroups::Info info = groups.Find(name);
      known_.try_emplace(info.identity, Entry{name, node, std::move(info.ranks)});
    }
  }

  // Whether this is one of them.
  bool Contain(const std::string& name, const ProcessGroups::Info& info) const {
    auto found = known_.find(info.identity);
    if (found == known_.end()) return false;
    const Entry& other = found->second;
    if (other.ranks != info.ranks) {
      Fail(ErrorCode::kGroupMismatch,
           "token exchanges use the process group \"{}\" with ranks [{}]; {} (%{}, module '{}') "
           "uses the same group under the name \"{}\", with ranks [{}]",
           name, fmt::join(info.ranks, ", "), other.node->op().name.str(),
           other.node->result()->name(), other.node->meta().module.str(), other.name,
           fmt::join(other.ranks, ", "));
    }
    return true;
  }

 private:
  struct Entry {
    std::string name;
    const Node* node;
    std::vector<int64_t> ranks;
  };
  std::unordered_map<int64_t, Entry> known_;
};

}  // namespace

const PassInfo& IsolateEpProcessGroup::info() const {
  static constexpr PassInfo kInfo = {
      .name = "isolate_ep_process_group",
      .summary = "Gives token exchanges a process group of their own.",
      .description =
          "Collectives of one process group run one behind the other, so an exchange of tokens "
          "that "
          "shares a group with gathers and reductions waits for them. Groups of token exchanges "
          "are "
          "those that an all-to-all names. If one is the very group of another kind of collective, "
          "under this name or another, all its all-to-alls move to a new group with the same ranks "
          "in the same order, whose traffic goes first. Equal ranks alone are no reason: two "
          "groups "
          "have two queues.",
      .reads = "operators, names of groups, which names stand for one group.",
      .writes = "the group's name on all-to-alls.",
      .never = "moves, adds or removes a node.",
  };
  return kInfo;
}

bool IsolateEpProcessGroup::RunImpl(Graph& graph, PassContext& context) {
  const Usage usage = Scan(graph);
  const OtherGroups others(context.groups(), usage);
  bool changed = false;
  for (const auto& [name, exchanges] : usage.exchanges) {
    if (!others.Contain(name, context.groups().Find(name))) continue;
    const std::string apart = context.groups().Separate(name, ProcessGroups::Purpose::kTokens);
    for (Node* node : exchanges) node->SetArg(node->op().group_arg, apart);
    log::Debug("token exchanges of group {} move to {}: {} nodes", name, apart, exchanges.size());
    ++groups_moved_;
    nodes_moved_ += static_cast<int64_t>(exchanges.size());
    changed = true;
  }
  return changed;
}

}  // namespace gt
