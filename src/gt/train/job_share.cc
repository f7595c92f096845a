#include "gt/train/job_share.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "gt/base/error.h"
#include "gt/models/loss.h"

namespace gt {
namespace {

constexpr const char *kTokens = "tokens", *kLabels = "labels", *kPositions = "positions";

// Rows of the whole batch that a rank needs: of any of its inputs.
ReaderRange ReadersOf(const std::vector<TensorBox>& boxes, int64_t rows) {
  int64_t begin = boxes[0].offset[0], end = begin;
  for (const TensorBox& box : boxes) {
    begin = std::min(begin, box.offset[0]);
    end = std::max(end, box.offset[0] + box.sizes[0]);
  }
  return {begin / rows, std::max((end + rows - 1) / rows, begin / rows + 1)};
}

}  // namespace

JobShare::JobShare(const Mesh& mesh, int64_t /*rows*/)
    : mesh_(mesh),
      readers_{mesh.coordinate(MeshAxis::kBatch), mesh.coordinate(MeshAxis::kBatch) + 1},
      random_stream_(mesh.rank()) {
  counts_tokens_ = counts_loss_ = mesh.coordinate(MeshAxis::kTp) == 0;
  const int64_t readers = mesh.size(MeshAxis::kBatch);
  for (int64_t i = 0; i < readers; ++i) savers_.push_back(i * (mesh.world_size() / readers));
}

JobShare::JobShare(const Mesh& mesh, int64_t rows, const PlacedJob& placed)
    : mesh_(mesh), counts_loss_(mesh.rank() == 0), counts_experts_apart_(false) {
  const placement::DeviceMesh grid(placed.plan.mesh);
  auto boxes_of = [&](int64_t rank) {
    std::vector<TensorBox> boxes;
    for (const char* name : {kTokens, kLabels, kPositions}) {
      boxes.push_back(placed.step.inputs.at(name).BoxOn(MeshRank(grid, rank)));
    }
    return boxes;
  };
  const std::vector<TensorBox> own = boxes_of(mesh.rank());
  readers_ = ReadersOf(own, rows);
  // The first rank that reads what a reader reads answers for it.
  savers_.assign(static_cast<size_t>(mesh.size(MeshAxis::kBatch)), -1);
  for (int64_t rank = 0; rank < mesh.world_size(); ++rank) {
    const ReaderRange range = ReadersOf(boxes_of(rank), rows);
    for (int64_t reader = range.first; reader < range.last; ++reader) {
      int64_t& saver = savers_.at(static_cast<size_t>(reader));
      if (saver < 0) saver = rank;
    }
  }
  auto part = [&](const TensorBox& box) {
    return Part{box.offset[0] - readers_.first * rows, box.sizes[0], box.offset[1], box.sizes[1]};
  };
  parts_ = {part(own[0]), part(own[1]), part(own[2]),
            placed.step.inputs.at(kLabels).IsAnsweredBy(MeshRank(grid, mesh.rank()))};
}

Batch JobShare::ToDevice(const TokenBatch& batch, at::Device device) const {
  if (!parts_) return gt::ToDevice(batch, device, mesh_);
  auto tensor = [&](const std::vector<int64_t>& numbers, const Part& part) {
    at::Tensor rows =
        at::from_blob(const_cast<int64_t*>(numbers.data()), {batch.rows, batch.length}, at::kLong);
    return rows.narrow(0, part.first_row, part.rows)
        .narrow(1, part.begin, part.length)
        .to(device, /*non_blocking=*/false, /*copy=*/true)
        .contiguous();
  };
  Batch moved = {tensor(batch.tokens, parts_->tokens), tensor(batch.labels, parts_->labels),
                 tensor(batch.positions, parts_->positions), 0};
  if (parts_->counts_labels) {
    moved.valid_tokens = at::ne(moved.labels, kIgnoredLabel).sum().item<int64_t>();
  }
  return moved;
}

}  // namespace gt
