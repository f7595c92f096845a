// Something known about every result of a graph's nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

// Holds one T for each result, found by the number of its node. Stays valid as long as the nodes keep
// their numbers (Graph::NumberNodes); nodes that are inserted later have none.
template <typename T>
class ResultMap {
 public:
  // The nodes must be numbered.
  explicit ResultMap(const Graph& graph, const T& initial = T()) {
    first_.reserve(static_cast<size_t>(graph.node_count()));
    size_t count = 0;
    for (const Node* node : graph.nodes()) {
      first_.push_back(static_cast<int32_t>(count));
      count += static_cast<size_t>(node->result_count());
    }
    entries_.assign(count, initial);
  }

  // The value must not be an input.
  T& operator[](const Value& value) { return entries_[Slot(value)]; }
  const T& operator[](const Value& value) const { return entries_[Slot(value)]; }

 private:
  size_t Slot(const Value& value) const {
    const int32_t first = first_[static_cast<size_t>(value.producer()->number())];
    return static_cast<size_t>(first) + static_cast<size_t>(value.index());
  }

  std::vector<int32_t> first_;  // by node
  std::vector<T> entries_;
};

}  // namespace gt
