// Layer norm and RMS norm: the fused kernels and their backward. Results are dense in row-major
// order whatever the input looks like, because the kernels work on a contiguous copy of it.
#include <fmt/format.h>

#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/sharding_rules.h"

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

// Dimensions that are not normalized, in everything that has them. Weights are whole and their
// gradients partial sums. kInput: schema position of the input, normalized_shape after it.
template <int kInput, int... kTensors>
void NormSharding(ShardingContext& ctx) {
  const int64_t outer =
      rules::TensorAt(ctx, kInput).rank() - std::ssize(std::get<Shape>(ctx.arg(kInput + 1)));
  for (int64_t d = 0; d < outer; ++d) {
    const auto state = static_cast<ShardState>(d);
    rules::RowMaker row(ctx);
    for (int arg : {kTensors...}) row.Arg(arg, state);
    constexpr bool kBackward = kInput == 1;
    row.Results(kBackward ? kPartial : state).Result(0, state).Add();
  }
}

void LayerNormBackwardSharding(ShardingContext& ctx) {
  NormSharding<1, 0, 1, 3, 4>(ctx);
  rules::AddLinearRow(ctx, {0});
}

void RmsNormBackwardSharding(ShardingContext& ctx) {
  NormSharding<1, 0, 1, 3>(ctx);
  rules::AddLinearRow(ctx, {0});
}

// Operators of our own (kernels/row_operators.h): the last dimension is normalized, and the weight is there.

void CheckRows(RuleContext& ctx, const TensorType& input, const TensorType& weight) {
  if (input.rank() == 0 || weight.rank() != 1) {
    ctx.Reject("the input needs a dimension to normalize, and the weight one of the same size");
  }
  rules::RequireEqual(ctx, input.sizes.back(), weight.sizes[0],
                      "the weight must be as long as the last dimension of the input");
  if (rules::IsIntegralOrBool(input.dtype) || IsComplex(input.dtype))
    ctx.Reject("needs real numbers");
}

void CheckSameRows(RuleContext& ctx, const TensorType& input, const TensorType& other) {
  if (input.rank() != other.rank()) ctx.Reject("tensors differ in rank");
  for (size_t i = 0; i < input.sizes.size(); ++i) {
    rules::RequireEqual(ctx, input.sizes[i], other.sizes[i], "tensors differ in size");
  }
  if (input.dtype != other.dtype) ctx.Reject("tensors differ in dtype");
}

TensorType RowStatistics(RuleContext& ctx, const TensorType& input) {
  const DType dtype = input.dtype == DType::kFloat64 ? input.dtype : DType::kFloat32;
  return Statistics(ctx, input, input.sizes.size() - 1, dtype);
}

// (input, weight, eps), or of a sum, which is returned as well: (self, other, weight, eps)
template <bool kAdded>
void RowNormRule(RuleContext& ctx) {
  const TensorType& input = ctx.Tensor(0);
  CheckRows(ctx, input, ctx.Tensor(kAdded ? 2 : 1));
  if (kAdded) {
    CheckSameRows(ctx, input, ctx.Tensor(1));
    ReturnLike(ctx, input);
  }
  ReturnLike(ctx, input);
  ctx.Return(RowStatistics(ctx, input));
}

// (grad_out, input, rstd, weight, added)
void RowNormBackwardRule(RuleContext& ctx) {
  const TensorType& input = ctx.Tensor(1);
  CheckRows(ctx, input, ctx.Tensor(3));
  CheckSameRows(ctx, input, ctx.Tensor(0));
  if (const TensorType* added = ctx.OptionalTensor(4)) CheckSameRows(ctx, input, *added);
  ReturnLike(ctx, input);
  ReturnLike(ctx, ctx.Tensor(3));
}

// Rows by the dimensions before the last, in the tensors that have them; kWeightGradient: a result that is
// summed over rows, or -1.
template <int kWeightGradient, int... kTensors>
void RowSharding(ShardingContext& ctx) {
  for (int64_t d = 0; d + 1 < ctx.operands()[0]->rank(); ++d) {
    const auto state = static_cast<ShardState>(d);
    rules::RowMaker row(ctx);
    for (int arg : {kTensors...}) row.Arg(arg, state);
    row.Results(state);
    if (kWeightGradient >= 0) row.Result(kWeightGradient, kPartial);
    row.Add();
  }
}

void RowNormBackwardSharding(ShardingContext& ctx) {
  RowSharding<1, 0, 1, 2, 4>(ctx);
  if (ctx.OperandAt(4) < 0) rules::AddLinearRow(ctx, {0});
}

}  // namespace

void RegisterNormalization(OperatorTable& table) {
  OperatorGroup norms(table, {.work = Work::kReduction, .order = DimOrder::kKept});
  Operator& layer_norm = norms.Add(
      "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, "
      "Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
      LayerNormRule);
  layer_norm.flops = ElementFlops<0, 7>;
  layer_norm.sharding = NormSharding<0, 0>;
  Operator& layer_norm_backward = norms.Add(
      "aten::native_layer_norm_backward(Tensor grad_out, Tensor input, "
      "SymInt[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, "
      "bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
      LayerNormBackwardRule);
  layer_norm_backward.flops = ElementFlops<1, 14>;
  layer_norm_backward.sharding = LayerNormBackwardSharding;
  Operator& rms_norm = norms.Add(
      "aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, "
      "float? eps) -> (Tensor, Tensor)",
      RmsNormRule);
  rms_norm.flops = ElementFlops<0, 4>;
  rms_norm.sharding = NormSharding<0, 0>;
  Operator& rms_norm_backward = norms.Add(
      "aten::_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, "
      "Tensor rstd, Tensor? weight, bool[2] output_mask) -> (Tensor, Tensor)",
      RmsNormBackwardRule);
  rms_norm_backward.flops = ElementFlops<1, 9>;
  rms_norm_backward.sharding = RmsNormBackwardSharding;

  Operator& row_norm =
      norms.Add("gt::rms_norm(Tensor input, Tensor weight, float eps) -> (Tensor out, Tensor rstd)",
                RowNormRule<false>);
  row_norm.flops = ElementFlops<0, 4>;
  row_norm.sharding = RowSharding<-1, 0>;
  Operator& add_row_norm = norms.Add(
      "gt::add_rms_norm(Tensor self, Tensor other, Tensor weight, float eps) -> (Tensor sum, "
      "Tensor out, Tensor rstd)",
      RowNormRule<true>);
  add_row_norm.flops = ElementFlops<0, 5>;
  add_row_norm.sharding = RowSharding<-1, 0, 1>;
  Operator& row_norm_backward = norms.Add(
      "gt::rms_norm_backward(Tensor grad_out, Tensor input, Tensor rstd, Tensor weight, Tensor? "
      "added=None) -> (Tensor grad_input, Tensor grad_weight)",
      RowNormBackwardRule);
  row_norm_backward.flops = ElementFlops<1, 9>;
  row_norm_backward.sharding = RowNormBackwardSharding;
}

}  // namespace gt
