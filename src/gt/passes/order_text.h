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

class CommonOrder {
 public:
  // Both must outlive it, and stay as they are.
  CommonOrder(const Graph& graph, const Dependencies& dependencies);

  // `order` names every node once, by number.
  std::string ToText(std::span<const int32_t> order) const;

  // All nodes of this graph by number, in the order that the text stands for. Fails with
  // RanksDisagree if the text was made for another graph, and with IllegalOrder if it names a node
  // twice or not at all.
  std::vector<int32_t> FromText(std::string_view text) const;

  // What comes of an order on its way through a text.
  std::vector<int32_t> Placed(std::span<const int32_t> order) const;

 private:
  class Placement;
  std::vector<int32_t> IndicesOf(std::span<const int32_t> order) const;
  std::string Head() const;

  const Dependencies& dependencies_;
  std::vector<int32_t> numbers_;   // of the nodes that all ranks have, in the order of the graph
  std::vector<int32_t> index_of_;  // by number: place in numbers_; -1: of this rank alone
  std::vector<bool> leads_;        // by number: a node that all ranks have needs it
  uint64_t hash_ = 0;              // of what those nodes are
};

}  // namespace gt
