#include "gt/kernels/kernel_table.h"

#include <ATen/ATen.h>

namespace gt {
namespace {

bool AreRows(const at::Tensor& x) {
  if (x.dim() == 0 || (x.size(-1) > 1 && x.stride(-1) != 1)) return false;
  int64_t stride = -1;
  for (int64_t d = x.dim() - 2; d >= 0; --d) {
    if (x.size(d) == 1) continue;
    if (stride >= 0 && x.stride(d) != stride) return false;
    stride = x.stride(d) * x.size(d);
  }
  return true;
}

int64_t RowStride(const at::Tensor& x) {
  for (int64_t d = x.dim() - 2; d >= 0; --d) {
    if (x.size(d) != 1) return x.stride(d);
  }
  return x.size(-1);
}

}  // namespace

Rows RowsOf(const at::Tensor& x) {
  at::Tensor rows = AreRows(x) ? x : x.contiguous();
  const int64_t stride = RowStride(rows);
  return {std::move(rows), stride};
}

at::Tensor RowMajor(const at::Tensor& tensor) {
  at::Tensor result = at::empty(tensor.sizes(), tensor.options());
  return result.strides() == tensor.strides() ? tensor : result.copy_(tensor);
}

}  // namespace gt
