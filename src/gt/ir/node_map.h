// Something about each node of a graph, found by the node's number (Graph::NumberNodes). Knows
// nothing of nodes that were inserted after the numbering, and loses its meaning with the next one.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

template <typename T>
class NodeMap {
 public:
  using reference = typename std::vector<T>::reference;
  using const_reference = typename std::vector<T>::const_reference;

  NodeMap() = default;
  // Numbers the nodes.
  explicit NodeMap(Graph& graph, const T& initial = T()) : NodeMap(graph.NumberNodes(), initial) {}
  // For nodes numbered from 0 to count - 1.
  explicit NodeMap(int32_t count, const T& initial = T())
      : values_(static_cast<size_t>(count), initial) {}

  int32_t size() const { return static_cast<int32_t>(values_.size()); }
  bool Contains(const Node& node) const { return node.number() >= 0 && node.number() < size(); }

  reference operator[](int32_t number) { return values_[Position(number)]; }
  const_reference operator[](int32_t number) const { return values_[Position(number)]; }
  reference operator[](const Node& node) { return (*this)[node.number()]; }
  const_reference operator[](const Node& node) const { return (*this)[node.number()]; }

  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  size_t Position(int32_t number) const {
    assert(number >= 0 && number < size());
    return static_cast<size_t>(number);
  }
  std::vector<T> values_;
};

// The nodes themselves, in their order. Numbers them.
inline NodeMap<Node*> NodesByNumber(Graph& graph) {
  NodeMap<Node*> nodes(graph, nullptr);
  for (Node* node : graph.nodes()) nodes[*node] = node;
  return nodes;
}

}  // namespace gt
