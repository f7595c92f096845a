// What one node costs on a device, estimated from the arithmetic and the bytes of what it computes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gt/ir/graph.h"
#include "gt/sim/link_model.h"

namespace gt {

// "hopper", "blackwell" as in Cluster::generation; one core of a modest machine for "cpu". Unknown
// names are taken for hopper.
DeviceSpeed SpeedOf(std::string_view generation);
// The cluster's own rates, or those of its generation.
DeviceSpeed SpeedOf(const Cluster& cluster);

// Whether running the node gives the device something to do: a kernel, a collective or a copy. Not
// so views (also a reshape that needs no copy at these sizes), waits, reads, and tensors that are
// left empty.
bool TakesTime(const Node& node, SymbolValues symbols);

// What a collective moves, counted as in link_model.h, or a copy to or from the host; 0 for others.
int64_t MovedBytes(const Node& node, SymbolValues symbols);

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

// What one rank computes of a node, as parts of the whole between 0 and 1. Empty: all of each.
struct NodeShard {
  double work = 1;
  std::span<const double> operands = {};
  std::span<const double> results = {};
};

// Of anything but a collective, which is a matter of links.
NodeCost EstimateNode(const Node& node, SymbolValues symbols, const DeviceSpeed& device,
                      const NodeShard& shard = {});

// Floating-point operations of the node, and bytes of all its operands and results.
double ArithmeticOf(const Node& node, SymbolValues symbols, const NodeShard& shard = {});
double BytesOf(const Node& node, SymbolValues symbols, const NodeShard& shard = {});

}  // namespace gt
