// What message passing moved along the edges of a problem, for the next problem with the same variables
// and nearly the same costs to start from. It decides how fast bounds rise, never whether they hold.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gt/placement/solver/label_graph.h"

namespace gt::placement {

class RememberedMessages {
 public:
  // `variable` are the problem's numbers of the graph's vertices.
  void Remember(const LabelGraph& graph, const std::vector<int32_t>& variable);
  void Recall(LabelGraph& graph, const std::vector<int32_t>& variable) const;

 private:
  // By the ends of an edge, the smaller first.
  std::map<std::pair<int32_t, int32_t>, std::pair<std::vector<double>, std::vector<double>>> moved_;
};

}  // namespace gt::placement
