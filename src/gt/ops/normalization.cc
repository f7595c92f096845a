// Layer norm and RMS norm: the fused kernels and their backward. Results are dense in row-major
// order whatever the input looks like, because the kernels work on a contiguous copy of it.
#include <fmt/format.h>

#include "gt/ops/registry.h"
#include "gt/ops/rules.h"

namespace gt {
namespace {

using rules::ElementFlops;

// Where the normalized dimensions begin: they are the last ones and must be of the sizes given.
size_t NormalizedFrom(RuleContext& ctx, const TensorType& input, int shape_arg) {
  const Shape& normalized = ctx.Ints(shape_arg);
  if (normalized.empty() || normalized.size() > input.sizes.size()) {
    ctx.Reject("normalized_shape must name one or more of the last dimensions");
  }
  size_t from = input.sizes.size() - normalized.size();
  for (size_t i = 0; i < normalized.size(); ++i) {
    rules::RequireEqual(ctx, input.sizes[from + i], normalized[i],
                        "normalized_shape must be the last sizes of the input");
  }
  return from;
}

void CheckWeight(RuleContext& ctx, const TensorType* weight, int shape_arg) {
  if (weight == nullptr) return;
  const Shape& normalized = ctx.Ints(shape_arg);
  if (weight->sizes.size() != normalized.size()) ctx.Reject("weights must have normalized_shape");
  for (size_t i = 0; i < normalized.size(); ++i) {
    rules::RequireEqual(ctx, weight->sizes[i], normalized[i], "weights must have normalized_shape");
  }
}

void ReturnLike(RuleContext& ctx, const TensorType& like) {
  ctx.Return(ContiguousType(like.dtype, like.device, like.sizes, ctx.env()));
}

// Mean and reciprocal deviation: one number for each group of normalized elements, the dimensions
// kept with size 1.
TensorType Statistics(RuleContext& ctx, const TensorType& input, size_t from, DType dtype) {
  Shape sizes = input.sizes;
  std::fill(sizes.begin() + static_cast<int64_t>(from), sizes.end(), Dim(1));
  return ContiguousType(dtype, input.device, std::move(sizes), ctx.env());
}

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// On the CPU layer norm keeps half-precision statistics, unless its weights are wider than its
// input.
DType LayerNormStatistics(const TensorType& input, const TensorType* weight) {
  if (!IsHalf(input.dtype)) return input.dtype;
  if (input.device.kind == DeviceKind::kCpu &&
      (weight == nullptr || weight->dtype == input.dtype)) {
    return input.dtype;
  }
  return DType::kFloat32;
}

void LayerNormRule(RuleContext& ctx) {
  const TensorType& input = ctx.Tensor(0);
  const TensorType *weight = ctx.OptionalTensor(2), *bias = ctx.OptionalTensor(3);
  size_t from = NormalizedFrom(ctx, input, 1);
  CheckWeight(ctx, weight, 1);
  CheckWeight(ctx, bias, 1);
  TensorType statistics =
      Statistics(ctx, input, from, LayerNormStatistics(input, weight ? weight : bias));
  ReturnLike(ctx, input);
  ctx.Return(statistics);
  ctx.Return(std::move(statistics));
}

void ReturnWeightGradient(RuleContext& ctx, const TensorType* weight, bool wanted) {
  if (wanted && weight != nullptr) {
    ReturnLike(ctx, *weight);
  } else {
    ctx.ReturnUndefined();
  }
}

void LayerNormBackwardRule(RuleContext& ctx) {
  const TensorType& input = ctx.Tensor(1);
  NormalizedFrom(ctx, input, 2);
  const std::vector<bool>& wanted = ctx.Bools(7);
  if (wanted.size() != 3) ctx.Reject("output_mask needs three entries");
  if (wanted[0]) {
    ReturnLike(ctx, input);
  } else {
    ctx.ReturnUndefined();
  }
  ReturnWeightGradient(ctx, ctx.OptionalTensor(5), wanted[1]);
  ReturnWeightGradient(ctx, ctx.OptionalTensor(6), wanted[2]);
}

void RmsNormRule(RuleContext& ctx) {
  const TensorType& input = ctx.Tensor(0);
  size_t from = NormalizedFrom(ctx, input, 1);
  CheckWeight(ctx, ctx.OptionalTensor(2), 1);
  DType statistics = IsHalf(input.dtype) ? DType::kFloat32 : input.dtype;
  ReturnLike(ctx, input);
  ctx.Return(Statistics(ctx, input, from, statistics));
}

void RmsNormBackwardRule(RuleContext& ctx) {
  const TensorType& input = ctx.Tensor(1);
  NormalizedFrom(ctx, input, 2);
  const std::vector<bool>& wanted = ctx.Bools(5);
  if (wanted.size() != 2) ctx.Reject("output_mask needs two entries");
  if (wanted[0]) {
    ReturnLike(ctx, input);
  } else {
    ctx.ReturnUndefined();
  }
  ReturnWeightGradient(ctx, ctx.OptionalTensor(4), wanted[1]);
}

}  // namespace

void RegisterNormalization(OperatorTable& table) {
  OperatorGroup norms(table, {.work = Work::kReduction, .order = DimOrder::kKept});
  norms
      .Add(
          "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, "
          "Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
          LayerNormRule)
      .flops = ElementFlops<0, 7>;
  norms
      .Add(
          "aten::native_layer_norm_backward(Tensor grad_out, Tensor input, "
          "SymInt[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, "
          "bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
          LayerNormBackwardRule)
      .flops = ElementFlops<1, 14>;
  norms
      .Add(
          "aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, "
          "float? eps) -> (Tensor, Tensor)",
          RmsNormRule)
      .flops = ElementFlops<0, 4>;
  norms
      .Add(
          "aten::_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, "
          "Tensor rstd, Tensor? weight, bool[2] output_mask) -> (Tensor, Tensor)",
          RmsNormBackwardRule)
      .flops = ElementFlops<1, 9>;
}

}  // namespace gt
