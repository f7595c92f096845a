#include "gt/placement/solver/neighbourhood_choice.h"

#include <algorithm>

namespace gt::placement {

NeighbourhoodChoice::NeighbourhoodChoice(const LabelGraph& graph)
    : graph_(graph), in_part_(graph.vertices.size(), 0) {}

void NeighbourhoodChoice::Add(int32_t v) {
  if (in_part_[static_cast<size_t>(v)]) return;
  in_part_[static_cast<size_t>(v)] = 1;
  part_.push_back(v);
}

const std::vector<char>& NeighbourhoodChoice::Next() {
  std::ranges::fill(in_part_, 0);
  part_.clear();
  const size_t count = graph_.vertices.size();
  const size_t wanted = std::min(count, size());
  const size_t first = random_() % count;
  if (random_() % 2 == 0) {
    for (size_t i = 0; i < wanted; ++i) Add(static_cast<int32_t>((first + i) % count));
    return in_part_;
  }
  Add(static_cast<int32_t>(first));
  for (size_t tries = 0; part_.size() < wanted && tries < 8 * wanted; ++tries) {
    const int32_t v = part_[random_() % part_.size()];
    const std::vector<int32_t>& edges = graph_.At(v).edges;
    if (edges.empty()) break;
    const int32_t e = edges[random_() % edges.size()];
    Add(graph_.edges[static_cast<size_t>(e)].Other(v));
  }
  return in_part_;
}

void NeighbourhoodChoice::Learn(bool finished, bool improved) {
  if (!finished) {
    size_ = std::max(8.0, size_ * 0.8);
  } else if (!improved) {
    size_ = std::min(static_cast<double>(graph_.vertices.size()), size_ * 1.05);
  }
}

}  // namespace gt::placement
