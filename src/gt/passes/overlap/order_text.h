// An order of nodes as text that other ranks can apply.
//
// Ranks see much the same graph. Their own shards of parameters and gradients (passes/overlap/rank_local_nodes.h) take
// more nodes where a shard is padded, and with context parallelism a rank's stretch of a sequence
// decides which attention it runs. The text is therefore about the nodes that take time or
// synchronize, a rank's own left out; every rank places the others by one rule: what another node
// needs is right before it, what none needs right after what it needs itself.
//
// Ranks whose remaining nodes differ all the same find theirs by what they are (operator, module, phase,
// chunk, how many of these came before), and keep to the order of collectives, waits and reads: where that
// leads to a node before what it needs, it is placed where another one needs it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gt/analysis/dependencies.h"

namespace gt {

class CommonOrder {
 public:
  // Both must outlive it, and stay as they are.
  CommonOrder(const Graph& graph, const Dependencies& dependencies);

  // `order` names every node once, by number.
  std::string ToText(std::span<const int32_t> order) const;

  // All nodes of this graph by number, in the order that the text encodes. Fails with
  // RanksDisagree if the text is of a graph with other collectives, waits or reads, and with
  // IllegalOrder if it is damaged, or if its order is not legal here.
  std::vector<int32_t> FromText(std::string_view text) const;

  // The order that results from writing this one as text and reading it back.
  std::vector<int32_t> Placed(std::span<const int32_t> order) const;

 private:
  class Placement;
  std::vector<int32_t> IndicesOf(std::span<const int32_t> order) const;
  std::string Head() const;
  bool Synchronizes(int32_t number) const { return synchronizes_[static_cast<size_t>(number)]; }
  // The numbers of this graph's nodes for another graph's keys; -1: it has none.
  std::vector<int32_t> Find(const std::vector<uint64_t>& keys) const;

  const Dependencies& dependencies_;
  std::vector<int32_t> numbers_;   // of the nodes that the text is about, in the order of the graph
  std::vector<uint64_t> keys_;     // of these: what they are
  std::vector<int32_t> index_of_;  // by number: place in numbers_; -1: the text is not about it
  std::vector<bool> leads_;        // by number: a node that the text is about needs it
  std::vector<bool> synchronizes_;  // by number: collectives, waits, reads
  uint64_t hash_ = 0;               // of all keys
};

}  // namespace gt
