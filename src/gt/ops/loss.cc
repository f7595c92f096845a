// Loss functions below autograd: what cross_entropy, mse_loss and friends turn into.
#include <fmt/format.h>

#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/view_rules.h"

namespace gt {
namespace {

using rules::ElementFlops;

constexpr int64_t kNoReduction = 0;  // at::Reduction::None; 1 is mean, 2 is sum

void ReturnScalar(RuleContext& ctx, const TensorType& like) {
  ctx.Return({like.dtype, like.device, {}, {}});
}

void CheckTarget(const RuleContext& ctx, const TensorType& target) {
  if (target.dtype != DType::kInt64 && target.dtype != DType::kUInt8) {
    ctx.Reject(fmt::format("the target must be i64, not {}", DTypeName(target.dtype)));
  }
}

void CheckNllShapes(RuleContext& ctx, const TensorType& self, const TensorType& target) {
  if (self.rank() < 1 || self.rank() > 2)
    ctx.Reject("the input must be [classes] or [batch, classes]");
  if (target.rank() > 1) ctx.Reject("the target must have at most one dimension");
  CheckTarget(ctx, target);
  if (self.rank() == 1) return;
  if (target.rank() != 1) ctx.Reject("a batch needs a target for each entry");
  rules::RequireEqual(ctx, self.sizes[0], target.sizes[0], "a batch needs a target for each entry");
}

void NllLossRule(RuleContext& ctx) {
  const TensorType &self = ctx.Tensor(0), &target = ctx.Tensor(1);
  CheckNllShapes(ctx, self, target);
  if (self.rank() == 2 && ctx.ConstInt(3) == kNoReduction) {
    ctx.Return(ContiguousType(self.dtype, self.device, {self.sizes[0]}, ctx.env()));
  } else {
    ReturnScalar(ctx, self);
  }
  ReturnScalar(ctx, self);
}

void CheckNll2dShapes(RuleContext& ctx, const TensorType& self, const TensorType& target) {
  if (self.rank() != 4 || target.rank() != 3) {
    ctx.Reject("the input must be [batch, classes, height, width] and the target without classes");
  }
  CheckTarget(ctx, target);
  static constexpr size_t kInputDims[] = {0, 2, 3};
  for (size_t i = 0; i < 3; ++i) {
    rules::RequireEqual(ctx, self.sizes[kInputDims[i]], target.sizes[i],
                        "the target must match the input in all dimensions but the classes");
  }
}

void NllLoss2dRule(RuleContext& ctx) {
  const TensorType &self = ctx.Tensor(0), &target = ctx.Tensor(1);
  CheckNll2dShapes(ctx, self, target);
  if (ctx.ConstInt(3) == kNoReduction) {
    ctx.Return(ContiguousType(self.dtype, self.device, target.sizes, ctx.env()));
  } else {
    ReturnScalar(ctx, self);
  }
  ReturnScalar(ctx, self);
}

void NllLossBackwardRule(RuleContext& ctx) {
  const TensorType &self = ctx.Tensor(1), &target = ctx.Tensor(2);
  CheckNllShapes(ctx, self, target);
  ctx.Return(ContiguousType(self.dtype, self.device, self.sizes, ctx.env()));
}

void NllLoss2dBackwardRule(RuleContext& ctx) {
  const TensorType &self = ctx.Tensor(1), &target = ctx.Tensor(2);
  CheckNll2dShapes(ctx, self, target);
  Shape strides = rules::PreservedStrides(ctx.env(), self);
  rules::RequireContiguous(ctx, self.sizes, strides,
                           "the kernel needs row-major input; call contiguous() before the loss");
  ctx.Return({self.dtype, self.device, self.sizes, std::move(strides)});
}

// The gradient of the input of elementwise losses: dense, of the input's sizes.
void InputGradientRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(1);
  ctx.Return(ContiguousType(self.dtype, self.device, self.sizes, ctx.env()));
}

// Elementwise losses: as an elementwise operator, or reduced to a number.
template <int kReduction>
void ElementwiseLossRule(RuleContext& ctx) {
  TensorType loss = rules::PointwiseResult(ctx, {0, 1}, rules::Compute::kSame);
  if (ctx.ConstInt(kReduction) != kNoReduction) {
    loss.sizes.clear();
    loss.strides.clear();
  }
  ctx.Return(std::move(loss));
}

// Computed in place on 1 - target, so that the target decides layout and dtype.
void BceWithLogitsRule(RuleContext& ctx) {
  TensorType loss = ctx.Tensor(1);
  loss.strides = rules::PreservedStrides(ctx.env(), loss);
  for (int other : {0, 2, 3}) {
    const TensorType* tensor = ctx.OptionalTensor(other);
    if (tensor == nullptr) continue;
    rules::RequireBroadcastsTo(ctx, tensor->sizes, loss.sizes, "all must broadcast to the target");
  }
  if (ctx.ConstInt(4) != kNoReduction) {
    loss.sizes.clear();
    loss.strides.clear();
  }
  ctx.Return(std::move(loss));
}

}  // namespace

void RegisterLoss(OperatorTable& table) {
  // Targets are indices of classes.
  OperatorGroup nll(
      table,
      {.work = Work::kReduction, .order = DimOrder::kKept, .integers = IntegerOperands::kIndices});
  OperatorGroup losses(table, {.work = Work::kReduction, .order = DimOrder::kKept});
  OperatorGroup gradients(table, {.work = Work::kPointwise, .order = DimOrder::kKept});
  nll.Add(
         "aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, "
         "SymInt ignore_index) -> (Tensor output, Tensor total_weight)",
         NllLossRule)
      .flops = ElementFlops<1, 2>;
  nll.Add(
         "aten::nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, "
         "Tensor? weight, int reduction, SymInt ignore_index, Tensor total_weight) -> Tensor",
         NllLossBackwardRule)
      .flops = ElementFlops<2, 2>;
  losses
      .Add(
          "aten::nll_loss2d_forward(Tensor self, Tensor target, Tensor? weight, int reduction, "
          "SymInt ignore_index) -> (Tensor output, Tensor total_weight)",
          NllLoss2dRule)
      .flops = ElementFlops<1, 2>;
  losses
      .Add(
          "aten::nll_loss2d_backward(Tensor grad_output, Tensor self, Tensor target, "
          "Tensor? weight, int reduction, SymInt ignore_index, Tensor total_weight) -> Tensor",
          NllLoss2dBackwardRule)
      .flops = ElementFlops<2, 2>;
  losses
      .Add("aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
           ElementwiseLossRule<2>)
      .flops = ElementFlops<0, 3>;
  gradients
      .Add(
          "aten::mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, "
          "int reduction) -> Tensor",
          InputGradientRule)
      .flops = ElementFlops<1, 3>;
  losses
      .Add(
          "aten::smooth_l1_loss(Tensor self, Tensor target, int reduction=1, float beta=1.) -> "
          "Tensor",
          ElementwiseLossRule<2>)
      .flops = ElementFlops<0, 5>;
  gradients
      .Add(
          "aten::smooth_l1_loss_backward(Tensor grad_output, Tensor self, Tensor target, "
          "int reduction, float beta) -> Tensor",
          InputGradientRule)
      .flops = ElementFlops<1, 5>;
  losses
      .Add(
          "aten::binary_cross_entropy_with_logits(Tensor self, Tensor target, "
          "Tensor? weight=None, Tensor? pos_weight=None, int reduction=1) -> Tensor",
          BceWithLogitsRule)
      .flops = ElementFlops<0, 8>;
}

}  // namespace gt
