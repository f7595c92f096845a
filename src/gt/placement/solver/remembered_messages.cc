#include "gt/placement/solver/remembered_messages.h"

#include <algorithm>
#include <cmath>

namespace gt::placement {
namespace {

// Infinite costs are not moved on: they would have to be taken back.
std::vector<double> Finite(std::vector<double> moved) {
  for (double& value : moved) {
    if (!std::isfinite(value)) value = 0;
  }
  return moved;
}

}  // namespace

void RememberedMessages::Remember(const LabelGraph& graph, const std::vector<int32_t>& variable) {
  for (const GraphEdge& edge : graph.edges) {
    if (!edge.present || edge.moved_a.empty()) continue;
    const int32_t a = variable[static_cast<size_t>(edge.a)];
    const int32_t b = variable[static_cast<size_t>(edge.b)];
    auto& [low, high] = moved_[std::minmax(a, b)];
    (a < b ? low : high) = Finite(edge.moved_a);
    (a < b ? high : low) = Finite(edge.moved_b);
  }
}

void RememberedMessages::Recall(LabelGraph& graph, const std::vector<int32_t>& variable) const {
  for (GraphEdge& edge : graph.edges) {
    if (!edge.present) continue;
    const int32_t a = variable[static_cast<size_t>(edge.a)];
    const int32_t b = variable[static_cast<size_t>(edge.b)];
    const auto known = moved_.find(std::minmax(a, b));
    if (known == moved_.end()) continue;
    const auto& [low, high] = known->second;
    edge.moved_a = a < b ? low : high;
    edge.moved_b = a < b ? high : low;
  }
}

}  // namespace gt::placement
