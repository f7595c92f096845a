// gt::expert_order: rows in the order of their experts. A pass (fusion/order_rewrites.h) puts it in place of the
// operators that compute the same; all results are integers, so no bit depends on the way.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace gt {

// experts: int64, each from 0 to below `count`. Elements in row-major order are slots. Returns the slots in the
// order of their experts, those of one expert in their own order; for each slot its place in that order; and how
// many slots each expert has.
std::tuple<at::Tensor, at::Tensor, at::Tensor> ExpertOrder(const at::Tensor& experts,
                                                           int64_t count);

}  // namespace gt
