// Loss functions below autograd: what cross_entropy, mse_loss and friends turn into.
#include <fmt/format.h>

#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/sharding_rules.h"
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

// (grad_out, scale, self, target, log_sum, ignore_index), an operator of our own (kernels/row_operators.h)
void CrossEntropyBackwardRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(2);
  if (self.rank() != 2 || rules::IsIntegralOrBool(self.dtype) || IsComplex(self.dtype)) {
    ctx.Reject("scores must be real numbers, [tokens, classes]");
  }
  const DType wide = self.dtype == DType::kFloat64 ? self.dtype : DType::kFloat32;
  for (int arg : {0, 1, 3, 4}) {
    const TensorType& row = ctx.Tensor(arg);
    if (row.rank() != 1 || row.dtype != (arg == 3 ? DType::kInt64 : wide)) {
      ctx.Reject("gradients, targets and sums must be one number for each token");
    }
    rules::RequireEqual(ctx, row.sizes[0], self.sizes[0], "all must be of the same tokens");
  }
  ctx.Return(ContiguousType(self.dtype, self.device, self.sizes, ctx.env()));
}

// Sharding. A mean divides by a count of the whole batch, which a shard does not know: its
// gradient gets the count as an operand, the forward pass does not.

constexpr int64_t kMean = 1;

// Where the target has dimension d of the input, which has a dimension of classes more.
ShardState InTarget(int64_t d, int64_t classes) {
  return static_cast<ShardState>(d < classes ? d : d - 1);
}

int64_t ClassDim(const TensorType& self) { return self.rank() == 1 ? 0 : 1; }

// (self, target, weight, reduction, ignore_index)
void NllSharding(ShardingContext& ctx) {
  const TensorType& self = rules::TensorAt(ctx, 0);
  const int64_t classes = ClassDim(self), reduction = rules::IntAt(ctx, 3);
  for (int64_t d = 0; d < self.rank() && reduction != kMean; ++d) {
    rules::RowMaker row(ctx);
    row.Arg(0, static_cast<ShardState>(d)).Results(kPartial);
    if (d != classes) {
      row.Arg(1, InTarget(d, classes));
      if (reduction == kNoReduction) row.Result(0, InTarget(d, classes));
      row.Add();
    } else if (rules::IntAt(ctx, 4) < 0) {
      // A class that is ignored would be another one in each shard.
      row.Arg(2, 0).Method(ShardMethod::kMaskedIndices).Add();
    }
  }
  // The total weight does not depend on the input.
  rules::RowMaker(ctx).Arg(0, kPartial).Result(0, kPartial).Add();
}

// (grad_output, self, target, weight, reduction, ignore_index, total_weight): of the input only its
// sizes matter.
void NllBackwardSharding(ShardingContext& ctx) {
  const TensorType& self = rules::TensorAt(ctx, 1);
  const int64_t classes = ClassDim(self), reduction = rules::IntAt(ctx, 4);
  for (int64_t d = 0; d < self.rank(); ++d) {
    const auto state = static_cast<ShardState>(d);
    rules::RowMaker row(ctx);
    row.Arg(1, state).Result(0, state);
    if (d != classes) {
      row.Arg(2, InTarget(d, classes));
      if (reduction == kNoReduction) row.Arg(0, InTarget(d, classes));
      row.Add();
    } else if (rules::IntAt(ctx, 5) < 0) {
      row.Arg(3, 0).Method(ShardMethod::kMaskedIndices).Add();
    }
  }
  rules::AddLinearRow(ctx, {0});
  if (reduction == kMean) return;
  // Only a mean divides by the total weight: others take it as the forward pass leaves it.
  const size_t total = static_cast<size_t>(ctx.OperandAt(6));
  const std::vector<ShardingRow> rows = ctx.rows();
  for (ShardingRow row : rows) {
    row.operands[total] = kPartial;
    ctx.Add(std::move(row));
  }
  rules::RowMaker(ctx).Arg(6, kPartial).Add();
}

// Tokens, or classes: a target elsewhere is none. Linear in the two gradients together.
void CrossEntropyBackwardSharding(ShardingContext& ctx) {
  rules::RowMaker tokens(ctx);
  for (int arg = 0; arg < 5; ++arg) tokens.Arg(arg, 0);
  tokens.Result(0, 0).Add();
  if (rules::IntAt(ctx, 5) < 0) {
    rules::RowMaker(ctx).Arg(2, 1).Result(0, 1).Method(ShardMethod::kMaskedIndices).Add();
  }
  rules::AddLinearRow(ctx, {0, 1});
}

// Losses of one element each: as pointwise operators, or summed.
template <int kReduction>
void ElementwiseLossSharding(ShardingContext& ctx) {
  const int64_t reduction = rules::IntAt(ctx, kReduction);
  if (reduction == kNoReduction) return rules::AddPointwiseRows(ctx);
  if (reduction == kMean) return;
  const TensorType* widest = ctx.operands()[0];
  for (const TensorType* operand : ctx.operands()) {
    if (operand->rank() > widest->rank()) widest = operand;
  }
  for (size_t d = 0; d < widest->sizes.size(); ++d) {
    rules::RowMaker row(ctx);
    bool any = false;
    for (size_t i = 0; i < ctx.operands().size(); ++i) {
      const TensorType& operand = *ctx.operands()[i];
      const int64_t at = static_cast<int64_t>(d) - widest->rank() + operand.rank();
      // One element goes with all of the others'.
      if (at < 0 || ctx.SizeOf(operand.sizes[static_cast<size_t>(at)]) == 1) continue;
      row.Operand(static_cast<int>(i), static_cast<ShardState>(at));
      any = true;
    }
    if (any) row.Results(kPartial).Add();
  }
}

// (grad_output, self, target, reduction, ...): a mean's gradient divides by the number of elements.
void ElementwiseLossBackwardSharding(ShardingContext& ctx) {
  if (rules::IntAt(ctx, 3) != kMean) rules::AddPointwiseRows(ctx);
  rules::AddLinearRow(ctx, {0});
}

}  // namespace

void RegisterLoss(OperatorTable& table) {
  // Targets are indices of classes.
  const OperatorFacts indexed = {
      .work = Work::kReduction, .order = DimOrder::kKept, .integers = IntegerOperands::kIndices};
  const OperatorFacts reduced = {.work = Work::kReduction, .order = DimOrder::kKept};
  const OperatorFacts pointwise = {.work = Work::kPointwise, .order = DimOrder::kKept};
  auto add = [&table](std::string_view schema, ShapeRule rule, OperatorFacts facts, CostRule flops,
                      ShardingRule sharding) {
    facts.flops = flops;
    facts.sharding = sharding;
    table.Add(schema, rule, facts);
  };
  add("aten::nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, "
      "SymInt ignore_index) -> (Tensor output, Tensor total_weight)",
      NllLossRule, indexed, ElementFlops<1, 2>, NllSharding);
  add("aten::nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, "
      "Tensor? weight, int reduction, SymInt ignore_index, Tensor total_weight) -> Tensor",
      NllLossBackwardRule, indexed, ElementFlops<2, 2>, NllBackwardSharding);
  add("aten::nll_loss2d_forward(Tensor self, Tensor target, Tensor? weight, int reduction, "
      "SymInt ignore_index) -> (Tensor output, Tensor total_weight)",
      NllLoss2dRule, reduced, ElementFlops<1, 2>, NllSharding);
  add("aten::nll_loss2d_backward(Tensor grad_output, Tensor self, Tensor target, "
      "Tensor? weight, int reduction, SymInt ignore_index, Tensor total_weight) -> Tensor",
      NllLoss2dBackwardRule, reduced, ElementFlops<2, 2>, NllBackwardSharding);
  add("gt::cross_entropy_backward(Tensor grad_out, Tensor scale, Tensor self, Tensor target, "
      "Tensor log_sum, int ignore_index) -> Tensor",
      CrossEntropyBackwardRule, indexed, ElementFlops<2, 4>, CrossEntropyBackwardSharding);
  add("aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor",
      ElementwiseLossRule<2>, reduced, ElementFlops<0, 3>, ElementwiseLossSharding<2>);
  add("aten::mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, "
      "int reduction) -> Tensor",
      InputGradientRule, pointwise, ElementFlops<1, 3>, ElementwiseLossBackwardSharding);
  add("aten::smooth_l1_loss(Tensor self, Tensor target, int reduction=1, float beta=1.) -> "
      "Tensor",
      ElementwiseLossRule<2>, reduced, ElementFlops<0, 5>, ElementwiseLossSharding<2>);
  add("aten::smooth_l1_loss_backward(Tensor grad_output, Tensor self, Tensor target, "
      "int reduction, float beta) -> Tensor",
      InputGradientRule, pointwise, ElementFlops<1, 5>, ElementwiseLossBackwardSharding);
  add("aten::binary_cross_entropy_with_logits(Tensor self, Tensor target, "
      "Tensor? weight=None, Tensor? pos_weight=None, int reduction=1) -> Tensor",
      BceWithLogitsRule, reduced, ElementFlops<0, 8>, ElementwiseLossSharding<4>);
}

}  // namespace gt
