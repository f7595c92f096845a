// Names for nodes that hold on every rank.
//
// Ranks see much the same graph, but numbers of nodes differ where one of them has more (padded shards,
// other stretches of a sequence). What is decided by one rank for all names nodes by what they are.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "gt/ir/graph.h"

namespace gt {

// Shown nodes in the order of the graph, on every rank those of the same kinds.
class NodeKeys {
 public:
  static constexpr int kDigits = 12;  // hexadecimal

  // Operator, module, phase, chunk, process group, and how many of these were shown before.
  uint64_t Next(const Node& node);

 private:
  std::unordered_map<uint64_t, uint64_t> seen_;  // of each kind
};

}  // namespace gt
