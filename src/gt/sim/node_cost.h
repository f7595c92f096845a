// What one node costs on a device, estimated from the arithmetic and the bytes of what it computes.
#pragma once

#include <cstdint>
#include <span>
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
