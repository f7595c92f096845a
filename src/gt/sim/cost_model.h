// How long nodes take, as schedules and simulations believe. Compute from the arithmetic and the
// bytes of a node, or from what was measured; collectives from the links of a cluster.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "gt/ir/graph.h"
#include "gt/sim/link_model.h"

namespace gt {

// A device that kernels run on.
struct DeviceSpeed {
  std::string name;
  double half_tflops = 0;         // matrix products of bf16 and f16 that large kernels reach
  double float_tflops = 0;        // of f32, and all arithmetic that is no matrix product
  double memory_gb_per_s = 0;     // what streaming kernels reach
  double kernel_us = 0;           // the shortest kernel, and the gap between two
  double launch_us = 0;           // the host's work for one kernel; 0: the host computes itself
  double host_read_us = 0;        // from the end of a kernel to the host's knowing a number it made
  double host_link_gb_per_s = 0;  // copies between the device's memory and the host's
};
// "hopper", "blackwell" as in Cluster::generation; one core of a modest machine for "cpu". Unknown
// names are taken for hopper.
DeviceSpeed SpeedOf(std::string_view generation);

// Whether running the node gives the device something to do: a kernel, a collective or a copy. Not
// so views (also a reshape that needs no copy at these sizes), waits, reads, and tensors that are
// left empty.
bool TakesTime(const Node& node, SymbolValues symbols);

// What a collective moves, counted as in link_model.h, or a copy to or from the host; 0 for others.
int64_t MovedBytes(const Node& node, SymbolValues symbols);

// Times by what is run: operator, types of operands at the sizes' hints, and arguments.
class CostTable {
 public:
  // "aten::mm(bf16[4096,2048],bf16[2048,1408]{1,2048})": the same for nodes that do the same work.
  // Written as in the text form of graphs, so that a key can be read back; a graph among the
  // arguments is its hash. "" for nodes that no table has a time of: those that take none (views,
  // waits), and collectives, which are a matter of links.
  static std::string KeyOf(const Node& node, SymbolValues symbols);

  const double* Find(const std::string& key) const;
  void Set(const std::string& key, double microseconds) { costs_[key] = microseconds; }
  size_t size() const { return costs_.size(); }
  const std::map<std::string, double, std::less<>>& costs() const { return costs_; }

  std::string device;  // that they were measured on

  // JSON: {"device": "...", "unit": "us", "costs": {key: microseconds}}. Reading fails with BadCosts,
  // naming file and place.
  std::string ToJson() const;
  static CostTable FromJson(std::string_view text, std::string_view file);

 private:
  std::map<std::string, double, std::less<>> costs_;
};

// What a node takes on its own, and what that depends on.
struct NodeCost {
  double us = 0;
  // Of a kernel: the part that the number of multiprocessors bounds. With a share of them it takes
  // that much longer, and memory may no longer be what bounds the kernel.
  double arithmetic_us = 0;
  // Of a collective or a copy: the same time in two parts.
  CollectiveTime link = {};
  double taken = 0;  // of a collective: the share of multiprocessors that it takes from kernels
};

// Answers for one graph whose sizes are the hints of its symbols. It knows nodes by their address:
// nodes may be moved and added, but once some were erased, only a new model tells the others from
// new ones in their place. Not for several threads at once.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // Time of the node on its own: on the compute stream, or, of a collective or a copy to or from the
  // host, in its queue. Views, waits and reads take none. In constant time for nodes that were there
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
