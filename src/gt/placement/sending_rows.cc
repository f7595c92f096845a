#include "gt/placement/sending_rows.h"

#include <string>

namespace gt::placement {

std::vector<Pin> SendingRows(const Graph& step, const DeviceMesh& mesh) {
  std::string own, rows;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    own += "S(0)";
    rows += axis + 1 == mesh.axes() ? "E0" : "S(0)";
  }
  std::vector<Pin> pins;
  for (const auto& input : step.inputs()) {
    const bool has_sequences = input->role == InputRole::kInput && input->value.type().rank() >= 2;
    if (has_sequences) pins.push_back({input->name, own});
  }
  for (const Node* node : step.nodes()) {
    const bool product = node->op().work == Work::kGroupedProduct;
    if (product && node->meta().phase == gt::Phase::kForward) {
      pins.push_back({node->result()->name(), rows});
    }
  }
  return pins;
}

}  // namespace gt::placement
