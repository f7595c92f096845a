#include "gt/kernels/expert_order.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>

#include "gt/fusion/order_kernels.h"
#include "gt/kernels/kernel_table.h"

namespace gt {
namespace {

using at::Tensor;
using Ordered = std::tuple<Tensor, Tensor, Tensor>;

Ordered OrderByParts(const Tensor& numbers, int64_t count) {
  const Tensor to_slots = std::get<1>(at::sort(numbers, /*stable=*/true, 0, false));
  const Tensor to_rows = at::scatter(at::zeros_like(to_slots), 0, to_slots,
                                     at::arange(numbers.numel(), to_slots.options()));
  const Tensor which = at::arange(count, numbers.options()).unsqueeze(1);
  return {RowMajor(to_slots), RowMajor(to_rows), at::eq(numbers.unsqueeze(0), which).sum(1)};
}

Ordered OrderSlots(const Tensor& experts, int64_t count) {
  const Tensor numbers = experts.reshape({-1}).contiguous();
  const bool fits = numbers.is_cuda() && count > 0 && count <= fusion::kMostOrderedExperts &&
                    numbers.numel() > 0 && numbers.numel() < std::numeric_limits<int>::max();
  if (!fits) return OrderByParts(numbers, count);
  static auto* kernels = new KernelTable<std::pair<bool, int64_t>>();
  auto find = [&](bool order) {
    return kernels->Find({order, count}, numbers.device(), [&] {
      return order ? fusion::ExpertOrderSource(count) : fusion::ExpertCountSource(count);
    });
  };
  DeviceFunction *counting = find(false), *ordering = find(true);
  if (counting == nullptr || ordering == nullptr) return OrderByParts(numbers, count);
  const fusion::OrderShape shape = fusion::OrderShapeFor(numbers.numel());
  const Tensor partial = at::empty({shape.blocks, count}, numbers.options().dtype(at::kInt));
  Tensor to_slots = at::empty_like(numbers), to_rows = at::empty_like(numbers);
  Tensor counts = at::empty({count}, numbers.options());
  const auto total = static_cast<long long>(numbers.numel()),
             each = static_cast<long long>(shape.each);
  LaunchKernel(*counting, shape.blocks, fusion::kOrderThreads, numbers.device(), InPointer(numbers),
               OutPointer(partial), total, each);
  LaunchKernel(*ordering, shape.blocks, fusion::kOrderThreads, numbers.device(), InPointer(numbers),
               InPointer(partial), OutPointer(to_slots), OutPointer(to_rows), OutPointer(counts),
               total, each, static_cast<int>(shape.blocks));
  return {to_slots, to_rows, counts};
}

}  // namespace

Ordered ExpertOrder(const Tensor& experts, int64_t count) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("gt::expert_order", "")
                             .typed<Ordered(const Tensor&, int64_t)>();
  return op.call(experts, count);
}

TORCH_LIBRARY_FRAGMENT(gt, library) {
  library.def(
      "expert_order(Tensor experts, int count) -> (Tensor to_slots, Tensor to_rows, Tensor "
      "counts)");
}
TORCH_LIBRARY_IMPL(gt, CompositeExplicitAutograd, library) {
  library.impl("expert_order", OrderSlots);
}

}  // namespace gt
