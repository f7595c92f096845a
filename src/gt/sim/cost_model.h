// How long nodes take, as schedules and simulations believe. Compute from the arithmetic and the
// bytes of a node, or from what was measured; collectives from the links of a cluster.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "gt/ir/graph.h"
#include "gt/sim/cost_table.h"
#include "gt/sim/link_model.h"
#include "gt/sim/node_cost.h"

namespace gt {

// Answers for one graph whose sizes are the hints of its symbols. It knows nodes by their address:
// nodes may be moved and added, but once some were erased, only a new model tells the others from
// new ones in their place. Not thread-safe.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // Time of the node on its own: on the compute stream, or, of a collective or a copy to or from the
  // host, in its queue. Views, waits and reads take none. In constant time for nodes that existed
  // when the model was made.
  virtual double Microseconds(const Node& node) const = 0;
  virtual NodeCost CostOf(const Node& node) const {
    const double us = Microseconds(node);
    return {.us = us, .link = {.transfer_us = us}};
  }
  virtual const DeviceSpeed& device() const = 0;
  // Whether collectives that run at the same time share links.
  virtual bool contention() const { return false; }
};

struct CostModelOptions {
  DeviceSpeed device;
  const LinkModel* links = nullptr;  // null: collectives are free; must outlive the model
  double link_scale = 1;             // factor on the time of collectives
  // Collectives share links with each other, and multiprocessors with kernels, as the cluster says.
  bool contention = false;
  // Where the ranks of each group are. A group that is not listed is taken to be as large as its
  // nodes say, on consecutive ranks; one whose nodes do not say, as the largest that is known.
  std::map<std::string, GroupSpan, std::less<>> groups = {};
  // Of measured times. What is not in it is estimated, and scaled by how measurements of the same
  // operator, or else of all, compare with their estimates. Must outlive the model.
  const CostTable* table = nullptr;
};
std::unique_ptr<CostModel> MakeCostModel(const Graph& graph, CostModelOptions options);

}  // namespace gt
