#include "gt/train/step/batch.h"

#include <ATen/ATen.h>

#include "gt/models/loss.h"

namespace gt {
namespace {

// Stretch `index` followed by stretch 2 * parts - 1 - index.
at::Tensor OwnStretches(const at::Tensor& x, int64_t parts, int64_t index) {
  int64_t stretch = x.size(1) / (2 * parts);
  return at::cat({x.narrow(1, index * stretch, stretch),
                  x.narrow(1, (2 * parts - 1 - index) * stretch, stretch)},
                 1);
}

}  // namespace

Batch ToDevice(const TokenBatch& batch, at::Device device, const Mesh& mesh) {
  int64_t parts = mesh.size(MeshAxis::kCp);
  auto tensor = [&](const std::vector<int64_t>& numbers) {
    at::Tensor rows =
        at::from_blob(const_cast<int64_t*>(numbers.data()), {batch.rows, batch.length}, at::kLong);
    if (parts > 1) rows = OwnStretches(rows, parts, mesh.coordinate(MeshAxis::kCp));
    return rows.to(device, /*non_blocking=*/false, /*copy=*/true);
  };
  Batch moved = {tensor(batch.tokens), tensor(batch.labels), tensor(batch.positions),
                 batch.valid_tokens};
  if (parts > 1) moved.valid_tokens = at::ne(moved.labels, kIgnoredLabel).sum().item<int64_t>();
  return moved;
}

}  // namespace gt
