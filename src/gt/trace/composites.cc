// Symbolic versions of composite operators whose libtorch implementation asks for plain sizes. They
// are registered on TESTING_ONLY_GenericWrapper, a key that only a recorder switches on: outside of
// a capture nothing calls these. Each takes the same path that libtorch takes for the same
// arguments, because the captured step must run the very kernels that eager runs.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "gt/trace/recorder.h"
#include "gt/trace/symbolic.h"

namespace gt {
namespace {

using at::Tensor;
using c10::SymInt;
using SymShape = c10::SmallVector<SymInt, 5>;

ShapeEnv& Shapes() { return Recorder::Active()->graph().shapes(); }

SymInt ProductOf(c10::SymIntArrayRef sizes) {
  SymInt product = 1;
  for (const SymInt& size : sizes) product = product * size;
  return product;
}

// Batches of matrices times one matrix are one matrix product if the batch folds into the rows
// without a copy. If the single matrix needs a gradient, libtorch folds even with a copy, since a
// batched product would expand it in the backward.
bool FoldsIntoRows(const Tensor& many, const Tensor& single, const Tensor& left) {
  if (many.dim() < 3 || single.dim() > 2) return false;
  if (single.requires_grad()) return true;
  if (left.dim() == 2) return false;
  auto sizes = many.sym_sizes();
  auto strides = many.sym_strides();
  for (size_t i = 0; i + 2 < sizes.size(); ++i) {
    if (!Shapes().EqualOrUnknown(ToDim(strides[i]), ToDim(strides[i + 1] * sizes[i + 1]))) {
      return false;
    }
  }
  return true;
}

Tensor FoldedMatmul(const Tensor& many, const Tensor& single, bool swapped) {
  auto sizes = many.sym_sizes();
  SymShape output(sizes.begin(), sizes.end() - 1);
  Tensor rows = many.reshape_symint({ProductOf(output), sizes.back()});
  if (single.dim() == 1) return at::_unsafe_view_symint(rows.mv(single), output);
  output.push_back(single.sym_size(1));
  Tensor product = at::_unsafe_view_symint(rows.mm(single), output);
  return swapped ? product.mT().contiguous() : product;
}

SymShape BroadcastBatch(const Tensor& left, const Tensor& right) {
  auto batch_of = [](const Tensor& tensor) {
    auto sizes = tensor.sym_sizes();
    return sizes.size() > 2 ? sizes.slice(0, sizes.size() - 2) : c10::SymIntArrayRef();
  };
  c10::SymIntArrayRef a = batch_of(left), b = batch_of(right);
  SymShape batch(std::max(a.size(), b.size()), SymInt(1));
  for (size_t i = 1; i <= batch.size(); ++i) {
    SymInt x = i <= a.size() ? a[a.size() - i] : SymInt(1);
    SymInt y = i <= b.size() ? b[b.size() - i] : SymInt(1);
    batch[batch.size() - i] = Shapes().IsOne(ToDim(x)) ? y : x;
  }
  return batch;
}

Tensor Matmul(const Tensor& left, const Tensor& right) {
  int64_t left_rank = left.dim(), right_rank = right.dim();
  if (left_rank == 1 && right_rank == 1) return left.dot(right);
  if (left_rank == 2 && right_rank == 1) return left.mv(right);
  if (left_rank == 1 && right_rank == 2) return left.unsqueeze(0).mm(right).squeeze_(0);
  if (left_rank == 2 && right_rank == 2) return left.mm(right);

  bool swapped = right_rank > left_rank;
  const Tensor& smaller = swapped ? left : right;
  if (FoldsIntoRows(swapped ? right.mT() : left, smaller, left)) {
    if (!swapped) return FoldedMatmul(left, right, false);
    return FoldedMatmul(right.mT(), left_rank == 2 ? left.t() : left, true);
  }
  if (left_rank == 3 && right_rank == 3 &&
      !Shapes().EqualOrUnknown(ToDim(left.sym_size(0)), ToDim(right.sym_size(0)))) {
    if (left.requires_grad() && Shapes().IsOne(ToDim(left.sym_size(0)))) {
      return Matmul(left.squeeze(0), right);
    }
    if (right.requires_grad() && Shapes().IsOne(ToDim(right.sym_size(0)))) {
      return Matmul(left, right.squeeze(0));
    }
  }

  SymShape batch = BroadcastBatch(left, right);
  SymInt batches = ProductOf(batch);
  auto with_batch = [&batch](std::initializer_list<SymInt> matrix) {
    SymShape shape(batch.begin(), batch.end());
    shape.append(matrix.begin(), matrix.end());
    return shape;
  };
  SymInt n = left_rank > 1 ? left.sym_size(-2) : SymInt(1);
  SymInt k = left.sym_size(-1);
  Tensor left_batch = left.expand_symint(with_batch({n, k})).reshape_symint({batches, n, k});
  SymShape output(batch.begin(), batch.end());
  if (left_rank > 1) output.push_back(n);
  if (right_rank == 1) {
    SymInt length = right.sym_size(0);
    Tensor right_batch =
        right.expand_symint(with_batch({length})).reshape_symint({batches, length}).unsqueeze(2);
    return at::_unsafe_view_symint(left_batch.bmm(right_batch).squeeze(-1), output);
  }
  SymInt rows = right.sym_size(-2), columns = right.sym_size(-1);
  Tensor right_batch =
      right.expand_symint(with_batch({rows, columns})).reshape_symint({batches, rows, columns});
  output.push_back(columns);
  return at::_unsafe_view_symint(left_batch.bmm(right_batch), output);
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericWrapper, library) { library.impl("matmul", Matmul); }

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace gt
