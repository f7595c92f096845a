// What the order of nodes must keep to, and putting a graph into a new order.
//
// Nodes are tied to each other by
//   - values: a user is after the producer;
//   - data symbols: what mentions a number that is read from a tensor, in an argument or a type,
//     is after the node that reads it;
//   - randomness: random operators draw from one generator, so they keep their order;
//   - side effects: these keep their order too.
// Collectives are not tied to each other: every rank runs the same graph, so every rank launches
// them in the same order, whichever it is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/ir/node_map.h"

namespace gt {

class Dependencies {
 public:
  // Numbers the nodes. Knows nothing of changes made later.
  explicit Dependencies(Graph& graph);

  // By number of the node; numbers of nodes, ascending, each once.
  std::span<const int32_t> NeededBy(int32_t node) const { return Row(needs_, node); }
  std::span<const int32_t> UsersOf(int32_t node) const { return Row(users_, node); }

  int32_t count() const { return nodes_.size(); }
  Node* node(int32_t number) const { return nodes_[number]; }

 private:
  struct Table {  // rows one after the other
    std::vector<int32_t> begin, entries;
  };
  static std::span<const int32_t> Row(const Table& table, int32_t row) {
    auto begin = static_cast<size_t>(table.begin[static_cast<size_t>(row)]);
    auto end = static_cast<size_t>(table.begin[static_cast<size_t>(row) + 1]);
    return std::span(table.entries).subspan(begin, end - begin);
  }
  void Collect(const Graph& graph);
  void Transpose();

  NodeMap<Node*> nodes_;
  Table needs_, users_;
};

// Puts the nodes into this order, which names each node of the graph once, by number. Returns whether
// that changed anything. Fails with IllegalOrder, naming node and tie, before anything is moved.
bool ApplyOrder(Graph& graph, const Dependencies& dependencies, std::span<const int32_t> order);

}  // namespace gt
