#include "gt/placement/sending_rows.h"

#include <string>

namespace gt::placement {

namespace {

// The sizes of a batch: sequences and tokens of each. Symbols and graphs without inputs have none.
struct Batch {
  int64_t sequences = 0, tokens = 0;

  explicit Batch(const Graph& step) {
    for (const auto& input : step.inputs()) {
      const TensorType& type = input->value.type();
      if (input->role != InputRole::kInput || type.rank() < 2) continue;
      sequences = type.sizes[0].as_const().value_or(0);
      tokens = type.sizes[1].as_const().value_or(0);
      return;
    }
  }
  bool IsActivation(const TensorType& type) const {
    return sequences > 0 && type.rank() >= 3 && type.sizes[0].as_const() == sequences &&
           type.sizes[1].as_const() == tokens;
  }
};

}  // namespace

std::vector<Pin> SendingRows(const Graph& step, const DeviceMesh& mesh) {
  const Batch batch(step);
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
    if (node->meta().phase != gt::Phase::kForward || node->result_count() == 0) continue;
    if (node->op().work == Work::kGroupedProduct) {
      pins.push_back({node->result()->name(), rows});
    } else if (node->result_count() == 1 && batch.IsActivation(node->result()->type())) {
      // Otherwise a step of few tokens gathers the sequences of all ranks, and every rank computes everything
      // but the experts.
      pins.push_back({node->result()->name(), own});
    }
  }
  return pins;
}

}  // namespace gt::placement
