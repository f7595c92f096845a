// Operators that make tensors out of sizes or out of the shape of another tensor, and the
// triangular masks.
#include <cmath>

#include "gt/base/error.h"
#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/sharding_rules.h"
#include "gt/ops/view_sharding.h"

namespace gt {
namespace {

using namespace rules;  // NOLINT: the vocabulary of this file

// Factory options are in the order dtype, layout, device, pin_memory in every schema; `first` is
// the position of dtype.
TensorType Made(RuleContext& ctx, Shape sizes, DType fallback, int first) {
  for (const Dim& size : sizes) {
    if (size.is_const() ? *size.as_const() < 0 : ctx.env().Less(size, 0)) {
      ctx.Reject(fmt::format("size {} is negative", ctx.env().Print(size)));
    }
  }
  return Contiguous(ctx, ctx.OptionalDType(first).value_or(fallback),
                    ctx.OptionalDevice(first + 2).value_or(Device{}), std::move(sizes));
}

// zeros, ones, empty
void MadeSizesRule(RuleContext& ctx) { ctx.Return(Made(ctx, ctx.Ints(0), kDefaultFloat, 1)); }
void FullRule(RuleContext& ctx) { ctx.Return(Made(ctx, ctx.Ints(0), NumberType(ctx.arg(1)), 2)); }
void ScalarTensorRule(RuleContext& ctx) { ctx.Return(Made(ctx, {}, kDefaultFloat, 1)); }
void EyeRule(RuleContext& ctx) {
  ctx.Return(Made(ctx, {ctx.Int(0), ctx.Int(0)}, kDefaultFloat, 1));
}
void EyeRectangleRule(RuleContext& ctx) {
  ctx.Return(Made(ctx, {ctx.Int(0), ctx.Int(1)}, kDefaultFloat, 2));
}
void LinspaceRule(RuleContext& ctx) { ctx.Return(Made(ctx, {ctx.Int(2)}, kDefaultFloat, 3)); }

void EmptyStridedRule(RuleContext& ctx) {
  TensorType made = Made(ctx, ctx.Ints(0), kDefaultFloat, 2);
  if (ctx.Ints(1).size() != made.sizes.size()) ctx.Reject("size and stride differ in length");
  made.strides = ctx.Ints(1);
  ctx.Return(std::move(made));
}

// physical_layout lists the dimensions from outermost to innermost.
void EmptyPermutedRule(RuleContext& ctx) {
  TensorType made = Made(ctx, ctx.Ints(0), kDefaultFloat, 2);
  std::vector<int64_t> order = ctx.ConstInts(1);
  if (order.size() != made.sizes.size()) ctx.Reject("physical_layout must list every dimension");
  uint64_t seen = 0;
  Shape physical;
  for (int64_t dim : order) {
    if (dim < 0 || dim >= made.rank() || (seen >> dim & 1)) {
      ctx.Reject("physical_layout must list every dimension once");
    }
    seen |= 1ull << dim;
    physical.push_back(made.sizes[static_cast<size_t>(dim)]);
  }
  Shape strides = ContiguousStrides(physical, ctx.env());
  for (size_t i = 0; i < order.size(); ++i)
    made.strides[static_cast<size_t>(order[i])] = strides[i];
  ctx.Return(std::move(made));
}

// Arange.

constexpr double kMaxInteger = 9.2e18;  // a little less than 2^63, so that converting is safe

double NumberOf(RuleContext& ctx, const Argument& number) {
  if (const double* value = std::get_if<double>(&number)) return *value;
  if (const Dim* value = std::get_if<Dim>(&number); value && value->is_const()) {
    return static_cast<double>(*value->as_const());
  }
  ctx.Reject("a symbolic size and a floating-point number do not go together here");
}

// The number of steps is exact for integers, symbolic or not. As soon as one of the three is a
// floating-point number the count is computed in double precision, as libtorch does on every
// device.
void Arange(RuleContext& ctx, const Argument& start, const Argument& end, const Argument& step,
            int options) {
  const Dim* first = std::get_if<Dim>(&start);
  const Dim* last = std::get_if<Dim>(&end);
  const Dim* by = std::get_if<Dim>(&step);
  if (first && last && by) {
    std::optional<int64_t> stride = by->as_const();
    if (!stride) ctx.Reject("the step must be a plain number");
    if (*stride == 0) ctx.Reject("the step must not be zero");
    Dim span = *stride > 0 ? *last - *first : *first - *last;
    if (span.is_const() ? *span.as_const() < 0 : ctx.env().Less(span, 0)) {
      ctx.Reject("the end lies before the start");
    }
    ctx.Return(Made(ctx, {CeilDiv(span, *stride > 0 ? *by : -*by)}, DType::kInt64, options));
    return;
  }
  double x = NumberOf(ctx, start), y = NumberOf(ctx, end), z = NumberOf(ctx, step);
  if (z == 0) ctx.Reject("the step must not be zero");
  if (!std::isfinite(x) || !std::isfinite(y)) ctx.Reject("start and end must be finite");
  if (std::isnan(z)) ctx.Reject("the step must be a number");
  if (z > 0 ? y < x : y > x) ctx.Reject("the end lies before the start");
  // The dtype decides in what precision libtorch reads the three numbers.
  DType dtype = ctx.OptionalDType(options).value_or(kDefaultFloat);
  Dim count;
  if (dtype == DType::kInt64) {
    for (double number : {x, y, z}) {
      if (std::abs(number) > kMaxInteger) ctx.Reject("a number does not fit into 64 bits");
    }
    auto a = static_cast<int64_t>(x), b = static_cast<int64_t>(y), c = static_cast<int64_t>(z);
    if (c == 0) ctx.Reject("the step must not be zero");
    count = c > 0 ? CeilDiv(Dim(b) - Dim(a), Dim(c)) : CeilDiv(Dim(a) - Dim(b), Dim(-c));
  } else {
    double steps = std::ceil((y - x) / z);
    if (!(steps <= kMaxInteger)) ctx.Reject("the number of steps does not fit into 64 bits");
    count = static_cast<int64_t>(steps);
  }
  ctx.Return(Made(ctx, {count}, dtype, options));
}

void ArangeRule(RuleContext& ctx) { Arange(ctx, Dim(0), ctx.arg(0), Dim(1), 1); }
void ArangeStartRule(RuleContext& ctx) { Arange(ctx, ctx.arg(0), ctx.arg(1), Dim(1), 2); }
void ArangeStepRule(RuleContext& ctx) { Arange(ctx, ctx.arg(0), ctx.arg(1), ctx.arg(2), 3); }

// Shaped like another tensor.

// Options, then memory_format, with dtype at `first`.
template <int first>
void MadeLikeRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return({ctx.OptionalDType(first).value_or(self.dtype),
              ctx.OptionalDevice(first + 2).value_or(self.device), self.sizes,
              StridesInFormat(ctx.env(), self, ctx.OptionalMemoryFormat(first + 4),
                              MemoryFormat::kPreserve)});
}

// new_zeros and so on: sizes of their own, dtype and device of self.
template <int first>
void NewRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  TensorType made = Made(ctx, ctx.Ints(1), self.dtype, first);
  made.device = ctx.OptionalDevice(first + 2).value_or(self.device);
  ctx.Return(std::move(made));
}

void NewEmptyStridedRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  TensorType made = Made(ctx, ctx.Ints(1), self.dtype, 3);
  if (ctx.Ints(2).size() != made.sizes.size()) ctx.Reject("size and stride differ in length");
  made.device = ctx.OptionalDevice(5).value_or(self.device);
  made.strides = ctx.Ints(2);
  ctx.Return(std::move(made));
}

void TriangleRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  if (self.rank() < 2) ctx.Reject("needs a matrix");
  ctx.Return(Contiguous(ctx, self.dtype, self.device, self.sizes));
}

// The functional form of lift_fresh, which libtorch generates, makes a row-major copy.
void LiftCopyRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return(Contiguous(ctx, self.dtype, self.device, self.sizes));
}

// Sharding. A partial sum of zeros is zeros.

template <bool zeros>
void MadeSharding(ShardingContext& ctx) {
  for (int64_t d = 0; d < ctx.results()[0]->rank(); ++d) {
    RowMaker(ctx).Result(0, static_cast<ShardState>(d)).Add();
  }
  if (zeros) RowMaker(ctx).Result(0, kPartial).Add();
}

void NumberedSharding(ShardingContext& ctx) {
  for (int64_t d = 0; d < ctx.results()[0]->rank(); ++d) {
    RowMaker(ctx).Result(0, static_cast<ShardState>(d)).Method(ShardMethod::kSliced).Add();
  }
}

// Only the type of the operand is used: where its elements are does not matter.
template <bool zeros>
void MadeLikeSharding(ShardingContext& ctx) {
  AddPointwiseRows(ctx);
  RowMaker(ctx).Operand(0, kPartial).Add();
  if (zeros) RowMaker(ctx).Result(0, kPartial).Add();
}

// Not even its sizes.
template <bool zeros>
void NewSharding(ShardingContext& ctx) {
  MadeSharding<zeros>(ctx);
  for (int64_t d = 0; d < ctx.operands()[0]->rank(); ++d) {
    RowMaker(ctx).Operand(0, static_cast<ShardState>(d)).Add();
  }
  RowMaker(ctx).Operand(0, kPartial).Add();
  if (ctx.operands()[0]->sizes == ctx.results()[0]->sizes) AddPointwiseRows(ctx);
}

}  // namespace

#define GT_OPTIONS \
  "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
void RegisterFactories(OperatorTable& table) {
  OperatorGroup filled(table,
                       {.work = Work::kFill, .order = DimOrder::kConstant, .flops = NoFlops});
  filled.Add("aten::zeros(SymInt[] size, *, " GT_OPTIONS ") -> Tensor", MadeSizesRule).sharding =
      MadeSharding<true>;
  filled.Add("aten::ones(SymInt[] size, *, " GT_OPTIONS ") -> Tensor", MadeSizesRule).sharding =
      MadeSharding<false>;
  filled.Add("aten::full(SymInt[] size, Scalar fill_value, *, " GT_OPTIONS ") -> Tensor", FullRule)
      .sharding = MadeSharding<false>;
  filled.Add("aten::scalar_tensor(Scalar s, *, " GT_OPTIONS ") -> Tensor", ScalarTensorRule);
  filled
      .Add("aten::zeros_like(Tensor self, *, " GT_OPTIONS
           ", MemoryFormat? memory_format=None) -> Tensor",
           MadeLikeRule<1>)
      .sharding = MadeLikeSharding<true>;
  filled
      .Add("aten::ones_like(Tensor self, *, " GT_OPTIONS
           ", MemoryFormat? memory_format=None) -> Tensor",
           MadeLikeRule<1>)
      .sharding = MadeLikeSharding<false>;
  filled
      .Add("aten::full_like(Tensor self, Scalar fill_value, *, " GT_OPTIONS
           ", MemoryFormat? memory_format=None) -> Tensor",
           MadeLikeRule<2>)
      .sharding = MadeLikeSharding<false>;
  filled.Add("aten::new_zeros(Tensor self, SymInt[] size, *, " GT_OPTIONS ") -> Tensor", NewRule<2>)
      .sharding = NewSharding<true>;
  filled.Add("aten::new_ones(Tensor self, SymInt[] size, *, " GT_OPTIONS ") -> Tensor", NewRule<2>)
      .sharding = NewSharding<false>;
  filled
      .Add("aten::new_full(Tensor self, SymInt[] size, Scalar fill_value, *, " GT_OPTIONS
           ") -> Tensor",
           NewRule<3>)
      .sharding = NewSharding<false>;

  OperatorGroup empty(table,
                      {.work = Work::kAllocate, .order = DimOrder::kConstant, .flops = NoFlops});
  empty
      .Add("aten::empty.memory_format(SymInt[] size, *, " GT_OPTIONS
           ", MemoryFormat? memory_format=None) -> Tensor",
           MadeSizesRule)
      .sharding = MadeSharding<false>;
  empty.Add("aten::empty_strided(SymInt[] size, SymInt[] stride, *, " GT_OPTIONS ") -> Tensor",
            EmptyStridedRule);
  empty
      .Add("aten::empty_permuted(SymInt[] size, int[] physical_layout, *, " GT_OPTIONS
           ") -> Tensor",
           EmptyPermutedRule)
      .sharding = MadeSharding<false>;
  empty
      .Add("aten::empty_like(Tensor self, *, " GT_OPTIONS
           ", MemoryFormat? memory_format=None) -> Tensor",
           MadeLikeRule<1>)
      .sharding = MadeLikeSharding<false>;
  empty.Add("aten::new_empty(Tensor self, SymInt[] size, *, " GT_OPTIONS ") -> Tensor", NewRule<2>)
      .sharding = NewSharding<false>;
  empty.Add("aten::new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, " GT_OPTIONS
            ") -> Tensor",
            NewEmptyStridedRule);

  OperatorGroup numbered(table, {.work = Work::kFill,
                                 .order = DimOrder::kNumbered,
                                 .flops = NoFlops,
                                 .sharding = NumberedSharding});
  numbered.Add("aten::arange(Scalar end, *, " GT_OPTIONS ") -> Tensor", ArangeRule);
  numbered.Add("aten::arange.start(Scalar start, Scalar end, *, " GT_OPTIONS ") -> Tensor",
               ArangeStartRule);
  numbered.Add("aten::arange.start_step(Scalar start, Scalar end, Scalar step=1, *, " GT_OPTIONS
               ") -> Tensor",
               ArangeStepRule);
  numbered.Add("aten::linspace(Scalar start, Scalar end, int steps, *, " GT_OPTIONS ") -> Tensor",
               LinspaceRule);
  numbered.Add("aten::eye(SymInt n, *, " GT_OPTIONS ") -> Tensor", EyeRule);
  numbered.Add("aten::eye.m(SymInt n, SymInt m, *, " GT_OPTIONS ") -> Tensor", EyeRectangleRule);

  OperatorGroup triangles(table, {.work = Work::kMove,
                                  .order = DimOrder::kKept,
                                  .flops = NoFlops,
                                  .sharding = TriangleSharding});
  triangles.Add("aten::tril(Tensor self, SymInt diagonal=0) -> Tensor", TriangleRule);
  triangles.Add("aten::triu(Tensor self, SymInt diagonal=0) -> Tensor", TriangleRule);
  table.Add("aten::lift_fresh_copy(Tensor self) -> Tensor", LiftCopyRule,
            {.work = Work::kSelect,
             .order = DimOrder::kKept,
             .flops = NoFlops,
             .sharding = LinearSharding});
}
#undef GT_OPTIONS

}  // namespace gt
