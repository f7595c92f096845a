// Large tensors get their values: first ones, or those of a file. Piece by piece on all cores; on the
// CPU straight into the tensor's memory, on a GPU through page-locked buffers, from which one piece
// is copied while the next is made.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "gt/storage/tensor_box.h"

namespace gt {

// As large as copies to a GPU need to be, and so small that what a core makes of one stays in its
// caches.
inline constexpr int64_t kFillElements = int64_t{1} << 20;

struct FillPiece {
  at::Tensor destination;  // contiguous; pieces do not overlap
  // Writes all values to `out`: a contiguous tensor in host memory, with the sizes and the dtype of
  // the destination. On some other thread, without gradients; operators run on that thread alone.
  std::function<void(const at::Tensor& out)> produce;
};

// Each piece is destroyed when it is done, and with it what its function holds on to.
void FillTensors(std::vector<FillPiece> pieces);

// What `part`, which is `box` of a tensor, has in `wanted`, which is inside of the box. A view.
at::Tensor ViewOfBox(const at::Tensor& part, const TensorBox& box, const TensorBox& wanted);

}  // namespace gt
