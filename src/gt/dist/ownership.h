// Which rank answers for a part of the state that several ranks hold: it writes it to checkpoints,
// counts it in hashes and sends it to exports.
#pragma once

#include "gt/dist/mesh.h"
#include "gt/storage/tensor_box.h"

namespace gt {

// Replicas hold what the first of them holds; tensors that are whole on every rank (buffers) are
// rank 0's.
inline bool OwnsPart(const TensorBox& box, const Mesh& mesh) {
  if (mesh.coordinate(MeshAxis::kDpReplicate) > 0) return false;
  return !box.IsWhole() || mesh.size(MeshAxis::kShard) == 1 || mesh.rank() == 0;
}

}  // namespace gt
