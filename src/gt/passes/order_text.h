// An order of nodes as text that other ranks can apply.
//
// Ranks see the same graph but for their own shards of parameters and gradients (passes/own_parts.h),
// which take more nodes where a shard is padded. The text therefore numbers the other nodes alone, and
// every rank places its own by one rule: what prepares a gather goes right before it, what follows a
// gradient's last reduction right after it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/passes/dependencies.h"

namespace gt {

// `order` names every node once, by number.
std::string OrderToText(const Graph& graph, const Dependencies& dependencies,
                        std::span<const int32_t> order);

// All nodes of this graph by number, in the order that the text stands for. Fails with RanksDisagree
// if the text was made for another graph, and with IllegalOrder if it names a node twice or not at all.
std::vector<int32_t> OrderFromText(const Graph& graph, const Dependencies& dependencies,
                                   std::string_view text);

}  // namespace gt
