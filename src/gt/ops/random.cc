// Operators that draw random numbers. They carry `random`: no pass may merge, duplicate, drop or
// reorder them unseen, since each draw moves the generator.
#include "gt/base/error.h"
#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/sharding_rules.h"

namespace gt {
namespace {

using namespace rules;  // NOLINT: the vocabulary of this file

void PreservedRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return({self.dtype, self.device, self.sizes, PreservedStrides(ctx.env(), self)});
}

void ContiguousRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return(Contiguous(ctx, self.dtype, self.device, self.sizes));
}

TensorType Drawn(RuleContext& ctx, const Shape& sizes, int options, DType fallback) {
  return Contiguous(ctx, ctx.OptionalDType(options).value_or(fallback),
                    ctx.OptionalDevice(options + 2).value_or(Device{}), sizes);
}

// rand, randn
void DrawnSizesRule(RuleContext& ctx) { ctx.Return(Drawn(ctx, ctx.Ints(0), 1, kDefaultFloat)); }
void RandintRule(RuleContext& ctx) { ctx.Return(Drawn(ctx, ctx.Ints(1), 2, kDefaultFloat)); }
void RandintLowRule(RuleContext& ctx) { ctx.Return(Drawn(ctx, ctx.Ints(2), 3, kDefaultFloat)); }
// Unlike randint, which takes a missing dtype for the default float.
void RandpermRule(RuleContext& ctx) { ctx.Return(Drawn(ctx, {ctx.Int(0)}, 1, DType::kInt64)); }
// (mean, std, size, generator, dtype, ...)
void NormalSizesRule(RuleContext& ctx) { ctx.Return(Drawn(ctx, ctx.Ints(2), 4, kDefaultFloat)); }

// rand_like and so on: options, then memory_format, with dtype at `first`.
template <int first>
void DrawnLikeRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return({ctx.OptionalDType(first).value_or(self.dtype),
              ctx.OptionalDevice(first + 2).value_or(self.device), self.sizes,
              StridesInFormat(ctx.env(), self, ctx.OptionalMemoryFormat(first + 4),
                              MemoryFormat::kPreserve)});
}

// (input, p, train): the result and the mask of what was kept.
void DropoutRule(RuleContext& ctx) {
  const TensorType& input = ctx.Tensor(0);
  if (!IsFloating(input.dtype) && !IsComplex(input.dtype))
    ctx.Reject("needs a floating-point tensor");
  TensorType mask{DType::kBool, input.device, input.sizes, PreservedStrides(ctx.env(), input)};
  // CUDA has a kernel of its own that writes into a tensor like the input; the CPU multiplies with
  // the mask. Outside of training the input is cloned.
  bool training = ctx.IsNone(2) || ctx.Bool(2);
  if (training && input.device.kind == DeviceKind::kCpu) {
    ctx.Return(
        Pointwise(ctx).AddTensor(input).AddTensor(mask).ConvertTo(input.dtype).Result(input.dtype));
  } else {
    ctx.Return({input.dtype, input.device, input.sizes, mask.strides});
  }
  ctx.Return(std::move(mask));
}

// grad * mask * scale: two multiplications on the CPU, one kernel with a row-major result on CUDA.
void DropoutBackwardRule(RuleContext& ctx) {
  const TensorType& grad = ctx.Tensor(0);
  if (grad.device.kind == DeviceKind::kCuda) {
    if (grad.rank() != ctx.Tensor(1).rank()) ctx.Reject("gradient and mask differ in rank");
    for (size_t i = 0; i < grad.sizes.size(); ++i) {
      RequireEqual(ctx, grad.sizes[i], ctx.Tensor(1).sizes[i], "gradient and mask differ in size");
    }
    ctx.Return(Contiguous(ctx, grad.dtype, grad.device, grad.sizes));
    return;
  }
  TensorType kept = PointwiseResult(ctx, {0, 1}, Compute::kSame);
  ctx.Return(Pointwise(ctx).AddTensor(kept).AddNumber().Result(kept.dtype));
}

// (self, num_samples, replacement, generator)
void MultinomialRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  if (self.rank() != 1 && self.rank() != 2) ctx.Reject("needs one or two dimensions");
  Shape sizes = self.sizes;
  sizes.back() = ctx.Int(1);
  if (!ctx.Bool(2) && ctx.env().Less(self.sizes.back(), ctx.Int(1))) {
    ctx.Reject("cannot draw more samples than there are categories without replacement");
  }
  ctx.Return(Contiguous(ctx, DType::kInt64, self.device, std::move(sizes)));
}

// Sharding: any dimension, the numbers being those of the whole tensor.

void DrawnSharding(ShardingContext& ctx) {
  for (int64_t d = 0; d < ctx.results()[0]->rank(); ++d) {
    RowMaker(ctx).Result(0, static_cast<ShardState>(d)).Method(ShardMethod::kRandom).Add();
  }
}

void DrawnLikeSharding(ShardingContext& ctx) {
  AddPointwiseRows(ctx);
  for (ShardingRow& row : ctx.rows()) row.method = ShardMethod::kRandom;
}

// Rows of probabilities.
void MultinomialSharding(ShardingContext& ctx) {
  if (ctx.operands()[0]->rank() != 2) return;
  RowMaker(ctx).Operand(0, 0).Result(0, 0).Method(ShardMethod::kRandom).Add();
}

void DropoutBackwardSharding(ShardingContext& ctx) { LinearInSharding<0>(ctx); }

Dim DropoutFlops(const CostContext& cost) { return cost.results[0]->numel() * Dim(3); }
Dim DropoutBackwardFlops(const CostContext& cost) { return cost.results[0]->numel() * Dim(2); }

}  // namespace

#define GT_OPTIONS \
  "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
#define GT_LONG_OPTIONS \
  "ScalarType? dtype=4, Layout? layout=None, Device? device=None, bool? pin_memory=None"
void RegisterRandom(OperatorTable& table) {
  OperatorGroup made(table, {.work = Work::kFill,
                             .order = DimOrder::kNumbered,
                             .sharding = DrawnSharding,
                             .random = true});
  made.Add("aten::rand(SymInt[] size, *, " GT_OPTIONS ") -> Tensor", DrawnSizesRule);
  made.Add("aten::randn(SymInt[] size, *, " GT_OPTIONS ") -> Tensor", DrawnSizesRule);
  made.Add("aten::randint(SymInt high, SymInt[] size, *, " GT_LONG_OPTIONS ") -> Tensor",
           RandintRule);
  made.Add("aten::randint.low(SymInt low, SymInt high, SymInt[] size, *, " GT_LONG_OPTIONS
           ") -> Tensor",
           RandintLowRule);
  made.Add("aten::randperm(SymInt n, *, " GT_LONG_OPTIONS ") -> Tensor", RandpermRule).sharding =
      nullptr;  // every element depends on all others
  made.Add(
      "aten::normal.float_float(float mean, float std, SymInt[] size, *, Generator? "
      "generator=None, " GT_OPTIONS ") -> Tensor",
      NormalSizesRule);

  OperatorGroup made_like(table, {.work = Work::kFill,
                                  .order = DimOrder::kKept,
                                  .sharding = DrawnLikeSharding,
                                  .random = true});
  made_like.Add("aten::rand_like(Tensor self, *, " GT_OPTIONS
                ", MemoryFormat? memory_format=None) -> Tensor",
                DrawnLikeRule<1>);
  made_like.Add("aten::randn_like(Tensor self, *, " GT_OPTIONS
                ", MemoryFormat? memory_format=None) -> Tensor",
                DrawnLikeRule<1>);
  made_like.Add("aten::randint_like(Tensor self, SymInt high, *, " GT_OPTIONS
                ", MemoryFormat? memory_format=None) -> Tensor",
                DrawnLikeRule<2>);
  made_like.Add("aten::randint_like.low_dtype(Tensor self, SymInt low, SymInt high, *, " GT_OPTIONS
                ", MemoryFormat? memory_format=None) -> Tensor",
                DrawnLikeRule<3>);

  OperatorGroup drawn(table, {.work = Work::kPointwise,
                              .order = DimOrder::kKept,
                              .sharding = DrawnLikeSharding,
                              .random = true});
  // What functionalization makes of the in-place forms.
  drawn.Add(
      "aten::normal_functional(Tensor self, float mean=0., float std=1., *, Generator? "
      "generator=None) -> Tensor",
      PreservedRule);
  drawn.Add(
      "aten::uniform(Tensor self, float from=0., float to=1., *, Generator? generator=None) -> "
      "Tensor",
      PreservedRule);
  drawn.Add(
      "aten::exponential(Tensor self, float lambd=1., *, Generator? generator=None) -> Tensor",
      PreservedRule);
  drawn.Add("aten::random(Tensor self, *, Generator? generator=None) -> Tensor", PreservedRule);
  drawn.Add(
      "aten::random.from(Tensor self, int from, int? to, *, Generator? generator=None) -> Tensor",
      PreservedRule);

  drawn.Add("aten::bernoulli(Tensor self, *, Generator? generator=None) -> Tensor", ContiguousRule);
  drawn.Add("aten::bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor",
            ContiguousRule);
  drawn
      .Add(
          "aten::multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, "
          "Generator? "
          "generator=None) -> Tensor",
          MultinomialRule)
      .sharding = MultinomialSharding;
  drawn
      .Add("aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
           DropoutRule)
      .flops = DropoutFlops;
  // Not random: it uses the mask that was drawn in the forward pass.
  table.Add("aten::native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor",
            DropoutBackwardRule,
            {.work = Work::kPointwise,
             .order = DimOrder::kKept,
             .flops = DropoutBackwardFlops,
             .sharding = DropoutBackwardSharding});
}
#undef GT_OPTIONS
#undef GT_LONG_OPTIONS

}  // namespace gt
