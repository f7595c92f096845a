// Operators of our own that send tokens to experts (kernels/router.h, kernels/expert_order.h).
#include <fmt/format.h>

#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/sharding_rules.h"

namespace gt {
namespace {

void CheckLogits(RuleContext& ctx, const TensorType& logits) {
  const bool wide = logits.dtype == DType::kFloat32 || logits.dtype == DType::kFloat64;
  if (logits.rank() != 2 || !wide) {
    ctx.Reject("logits must be float32 or float64, [tokens, experts]");
  }
}

// (logits, bias, top_k, sigmoid, groups, kept_groups, normalize, scale)
void RouterRule(RuleContext& ctx) {
  const TensorType& logits = ctx.Tensor(0);
  CheckLogits(ctx, logits);
  const Dim& experts = logits.sizes[1];
  if (const TensorType* bias = ctx.OptionalTensor(1)) {
    if (bias->rank() != 1 || rules::IsIntegralOrBool(bias->dtype) || IsComplex(bias->dtype)) {
      ctx.Reject("bias must be a real number for each expert");
    }
    rules::RequireEqual(ctx, bias->sizes[0], experts, "bias must be a number for each expert");
  }
  const int64_t top_k = ctx.ConstInt(2), groups = ctx.ConstInt(4), kept = ctx.ConstInt(5);
  if (top_k < 0 || ctx.env().Less(experts, top_k)) {
    ctx.Reject(
        fmt::format("top_k = {} is out of range for {} experts", top_k, ctx.env().Print(experts)));
  }
  if (groups < 1 || kept < 1 || kept > groups) {
    ctx.Reject(fmt::format("kept_groups = {} is out of range for {} groups", kept, groups));
  }
  if (groups > 1) {
    rules::RequireEqual(ctx, FloorDiv(experts, Dim(groups)) * Dim(groups), experts,
                        "groups must divide the experts");
  }
  const Shape sizes = {logits.sizes[0], Dim(top_k)};
  ctx.Return(ContiguousType(logits.dtype, logits.device, sizes, ctx.env()));
  ctx.Return(ContiguousType(DType::kInt64, logits.device, sizes, ctx.env()));
}

// (grad_out, logits, experts, sigmoid, normalize, scale)
void RouterBackwardRule(RuleContext& ctx) {
  const TensorType &grad = ctx.Tensor(0), &logits = ctx.Tensor(1), &experts = ctx.Tensor(2);
  CheckLogits(ctx, logits);
  if (grad.rank() != 2 || grad.dtype != logits.dtype || experts.rank() != 2 ||
      experts.dtype != DType::kInt64) {
    ctx.Reject("gradients must be of the logits' dtype, and experts 64-bit integers: [tokens, k]");
  }
  rules::RequireEqual(ctx, grad.sizes[0], logits.sizes[0], "all must be of the same tokens");
  rules::RequireEqual(ctx, experts.sizes[0], logits.sizes[0], "all must be of the same tokens");
  rules::RequireEqual(ctx, grad.sizes[1], experts.sizes[1], "each expert needs a gradient");
  ctx.Return(ContiguousType(logits.dtype, logits.device, logits.sizes, ctx.env()));
}

// (experts, count)
void ExpertOrderRule(RuleContext& ctx) {
  const TensorType& experts = ctx.Tensor(0);
  const int64_t count = ctx.ConstInt(1);
  if (experts.dtype != DType::kInt64 || count < 1) {
    ctx.Reject("experts must be 64-bit integers, and count how many experts there are");
  }
  const auto numbers = [&](const Dim& size) {
    return ContiguousType(DType::kInt64, experts.device, {size}, ctx.env());
  };
  ctx.Return(numbers(experts.numel()));
  ctx.Return(numbers(experts.numel()));
  ctx.Return(numbers(Dim(count)));
}

// Tokens. What experts a token is sent to depends on the scores of all of them.
void RouterSharding(ShardingContext& ctx) { rules::RowMaker(ctx).Arg(0, 0).Results(0).Add(); }

void RouterBackwardSharding(ShardingContext& ctx) {
  rules::RowMaker(ctx).Arg(0, 0).Arg(1, 0).Arg(2, 0).Results(0).Add();
  rules::AddLinearRow(ctx, {0});
}

}  // namespace

void RegisterRouting(OperatorTable& table) {
  OperatorGroup rows(table, {.work = Work::kReduction, .order = DimOrder::kKept});
  // Scores (maximum, subtraction, exponential, sum, division) and comparisons.
  Operator& router = rows.Add(
      "gt::router(Tensor logits, Tensor? bias, int top_k, bool sigmoid, int groups, int "
      "kept_groups, bool normalize, float scale) -> (Tensor weights, Tensor experts)",
      RouterRule);
  router.flops = rules::ElementFlops<0, 6>;
  router.recompute = RecomputeClass::kRouting;
  router.sharding = RouterSharding;
  // Scores again, product and subtraction.
  Operator& backward = rows.Add(
      "gt::router_backward(Tensor grad_out, Tensor logits, Tensor experts, bool sigmoid, bool "
      "normalize, float scale) -> Tensor",
      RouterBackwardRule);
  backward.flops = rules::ElementFlops<1, 7>;
  backward.integers = IntegerOperands::kIndices;
  backward.sharding = RouterBackwardSharding;
  // Put in by a pass that runs after all that cut tensors. Counted twice, scanned and written.
  table.Add(
      "gt::expert_order(Tensor experts, int count) -> (Tensor to_slots, Tensor to_rows, Tensor "
      "counts)",
      ExpertOrderRule,
      {.work = Work::kReduction,
       .order = DimOrder::kUnknown,
       .flops = rules::ElementFlops<0, 4>,
       .integers = IntegerOperands::kIndices});
}

}  // namespace gt
