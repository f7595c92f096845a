// Which part of a large problem to solve next: vertices around a random one, or vertices that are
// next to each other in the program and so compete for memory. Parts grow while they are solved
// easily and shrink when they are not.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "gt/placement/solver/label_graph.h"

namespace gt::placement {

class NeighbourhoodChoice {
 public:
  explicit NeighbourhoodChoice(const LabelGraph& graph);

  // By vertex, whether it is part of it.
  const std::vector<char>& Next();
  void Learn(bool finished, bool improved);
  size_t size() const { return static_cast<size_t>(size_); }

 private:
  void Add(int32_t v);

  const LabelGraph& graph_;
  std::mt19937_64 random_{19};
  double size_ = 64;
  std::vector<char> in_part_;
  std::vector<int32_t> part_;
};

}  // namespace gt::placement
