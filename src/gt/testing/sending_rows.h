// Demands on a placement that no search of a small model would meet by itself.
#pragma once

#include <string>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/placement/place_problem.h"

namespace gt::testing {

// Every rank has sequences of its own, and rows travel to their experts along the last axis.
inline std::vector<placement::Pin> SendingRows(const Graph& step,
                                               const placement::DeviceMesh& mesh) {
  std::string own, rows;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    own += "S(0)";
    rows += axis + 1 == mesh.axes() ? "E0" : "S(0)";
  }
  std::vector<placement::Pin> pins;
  for (const char* input : {"tokens", "labels", "positions"}) pins.push_back({input, own});
  for (const Node* node : step.nodes()) {
    const bool product = node->op().work == Work::kGroupedProduct;
    if (product && node->meta().phase == Phase::kForward) {
      pins.push_back({node->result()->name(), rows});
    }
  }
  return pins;
}

}  // namespace gt::testing
