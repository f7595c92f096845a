// Operators that combine elements along dimensions: sums, extrema, norms, scans, softmax, sorting.
// libtorch lays their results out row-major whatever the input looks like, except where noted.
#include "gt/base/error.h"
#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/sharding_rules.h"

namespace gt {
namespace {

using namespace rules;  // NOLINT: the vocabulary of this file

// Integers and bool are summed in 64 bits.
DType SumType(DType dtype) { return IsIntegralOrBool(dtype) ? DType::kInt64 : dtype; }

void RequireFloating(RuleContext& ctx, DType dtype) {
  if (IsIntegralOrBool(dtype)) ctx.Reject("needs a floating-point or complex tensor");
}

// Reductions without a neutral element need something to reduce over.
void RequireElements(RuleContext& ctx, const TensorType& self, uint64_t mask) {
  for (size_t i = 0; i < self.sizes.size(); ++i) {
    if ((mask >> i & 1) && ctx.env().IsEmptySize(self.sizes[i])) {
      ctx.Reject(fmt::format("dimension {} has no elements to reduce", i));
    }
  }
}

// A list of dimensions that may be missing or empty, both meaning all.
uint64_t OptionalDims(RuleContext& ctx, int arg) {
  static const Shape kAll;
  const Shape* dims = ctx.OptionalInts(arg);
  return DimMask(ctx, dims ? *dims : kAll, ctx.Tensor(0).rank(), /*empty_is_all=*/true);
}

uint64_t AllDims(const RuleContext& ctx) {
  return DimMask(ctx, {}, ctx.Tensor(0).rank(), /*empty_is_all=*/true);
}

uint64_t OneDim(RuleContext& ctx, int arg) {
  return 1ull << NormalizeDim(ctx, ctx.ConstInt(arg), ctx.Tensor(0).rank());
}

void ReturnReduced(RuleContext& ctx, DType dtype, uint64_t mask, bool keepdim) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return(Contiguous(ctx, dtype, self.device, ReducedSizes(self.sizes, mask, keepdim)));
}

// Sums and means.

void SumAllRule(RuleContext& ctx) {
  DType dtype = ctx.OptionalDType(1).value_or(SumType(ctx.Tensor(0).dtype));
  ReturnReduced(ctx, dtype, AllDims(ctx), false);
}
// (self, dim, keepdim, dtype)
void SumRule(RuleContext& ctx) {
  DType dtype = ctx.OptionalDType(3).value_or(SumType(ctx.Tensor(0).dtype));
  ReturnReduced(ctx, dtype, OptionalDims(ctx, 1), ctx.Bool(2));
}
void MeanAllRule(RuleContext& ctx) {
  DType dtype = ctx.OptionalDType(1).value_or(ctx.Tensor(0).dtype);
  RequireFloating(ctx, dtype);
  ReturnReduced(ctx, dtype, AllDims(ctx), false);
}
void MeanRule(RuleContext& ctx) {
  DType dtype = ctx.OptionalDType(3).value_or(ctx.Tensor(0).dtype);
  RequireFloating(ctx, dtype);
  ReturnReduced(ctx, dtype, OptionalDims(ctx, 1), ctx.Bool(2));
}
void ProdDimRule(RuleContext& ctx) {
  DType dtype = ctx.OptionalDType(3).value_or(SumType(ctx.Tensor(0).dtype));
  ReturnReduced(ctx, dtype, OneDim(ctx, 1), ctx.Bool(2));
}
void CountNonzeroAllRule(RuleContext& ctx) {
  uint64_t mask = ctx.IsNone(1) ? AllDims(ctx) : OneDim(ctx, 1);
  ReturnReduced(ctx, DType::kInt64, mask, false);
}
void CountNonzeroRule(RuleContext& ctx) {
  ReturnReduced(ctx, DType::kInt64, OptionalDims(ctx, 1), false);
}

// Extrema.

void ExtremumAllRule(RuleContext& ctx) {
  RequireElements(ctx, ctx.Tensor(0), AllDims(ctx));
  ReturnReduced(ctx, ctx.Tensor(0).dtype, AllDims(ctx), false);
}
// amax, amin
void ExtremumRule(RuleContext& ctx) {
  uint64_t mask = OptionalDims(ctx, 1);
  RequireElements(ctx, ctx.Tensor(0), mask);
  ReturnReduced(ctx, ctx.Tensor(0).dtype, mask, ctx.Bool(2));
}
// max.dim, min.dim: values and their indices.
void ExtremumWithIndexRule(RuleContext& ctx) {
  uint64_t mask = OneDim(ctx, 1);
  RequireElements(ctx, ctx.Tensor(0), mask);
  ReturnReduced(ctx, ctx.Tensor(0).dtype, mask, ctx.Bool(2));
  ReturnReduced(ctx, DType::kInt64, mask, ctx.Bool(2));
}
void ArgExtremumRule(RuleContext& ctx) {
  uint64_t mask = ctx.IsNone(1) ? AllDims(ctx) : OneDim(ctx, 1);
  RequireElements(ctx, ctx.Tensor(0), mask);
  ReturnReduced(ctx, DType::kInt64, mask, ctx.Bool(2));
}

// any and all keep uint8 for the sake of old programs; everything else becomes bool.
DType TruthType(DType dtype) { return dtype == DType::kUInt8 ? dtype : DType::kBool; }
void TruthAllRule(RuleContext& ctx) {
  ReturnReduced(ctx, TruthType(ctx.Tensor(0).dtype), AllDims(ctx), false);
}
void TruthDimRule(RuleContext& ctx) {
  ReturnReduced(ctx, TruthType(ctx.Tensor(0).dtype), OneDim(ctx, 1), ctx.Bool(2));
}
void TruthDimsRule(RuleContext& ctx) {
  // Here an empty list means no dimension at all, and only a missing one means all of them.
  const Shape* dims = ctx.OptionalInts(1);
  uint64_t mask =
      dims ? DimMask(ctx, *dims, ctx.Tensor(0).rank(), /*empty_is_all=*/false) : AllDims(ctx);
  ReturnReduced(ctx, TruthType(ctx.Tensor(0).dtype), mask, ctx.Bool(2));
}

// Statistics and norms.

void LogSumExpRule(RuleContext& ctx) {
  ReturnReduced(ctx, FloatFor(ctx.Tensor(0).dtype), OptionalDims(ctx, 1), ctx.Bool(2));
}
// (self, dim, correction, keepdim)
void VarRule(RuleContext& ctx) {
  RequireFloating(ctx, ctx.Tensor(0).dtype);
  ReturnReduced(ctx, RealOf(ctx.Tensor(0).dtype), OptionalDims(ctx, 1), ctx.Bool(3));
}
void VarMeanRule(RuleContext& ctx) {
  VarRule(ctx);
  ReturnReduced(ctx, ctx.Tensor(0).dtype, OptionalDims(ctx, 1), ctx.Bool(3));
}
// (self, ord, dim, keepdim, dtype)
void VectorNormRule(RuleContext& ctx) {
  RequireFloating(ctx, ctx.Tensor(0).dtype);
  DType dtype = RealOf(ctx.OptionalDType(4).value_or(ctx.Tensor(0).dtype));
  ReturnReduced(ctx, dtype, OptionalDims(ctx, 2), ctx.Bool(3));
}
// (self, p, dim, keepdim [, dtype])
void NormRule(RuleContext& ctx) {
  DType dtype =
      ctx.op().schema.args.size() > 4 ? ctx.OptionalDType(4).value() : ctx.Tensor(0).dtype;
  RequireFloating(ctx, dtype);
  ReturnReduced(ctx, RealOf(dtype), OptionalDims(ctx, 2), ctx.Bool(3));
}
void NormAllRule(RuleContext& ctx) {
  RequireFloating(ctx, ctx.Tensor(0).dtype);
  ReturnReduced(ctx, RealOf(ctx.Tensor(0).dtype), AllDims(ctx), false);
}

// Scans, softmax, sorting.

// cumsum, cumprod: (self, dim, dtype)
void ScanRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  NormalizeDim(ctx, ctx.ConstInt(1), self.rank());
  DType dtype = ctx.OptionalDType(2).value_or(SumType(self.dtype));
  ctx.Return(Contiguous(ctx, dtype, self.device, self.sizes));
}

// (self, dim, half_to_float)
void SoftmaxRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  NormalizeDim(ctx, ctx.ConstInt(1), self.rank());
  bool widen = ctx.Bool(2);
  if (widen && self.device.kind == DeviceKind::kCpu) {
    ctx.Reject("conversion from half to float is a CUDA option");
  }
  ctx.Return(Contiguous(ctx, widen ? DType::kFloat32 : self.dtype, self.device, self.sizes));
}

// (grad_output, output, dim, input_dtype)
void SoftmaxBackwardRule(RuleContext& ctx) {
  const TensorType& grad = ctx.Tensor(0);
  const TensorType& output = ctx.Tensor(1);
  NormalizeDim(ctx, ctx.ConstInt(2), grad.rank());
  if (grad.rank() != output.rank()) ctx.Reject("grad_output and output differ in rank");
  for (size_t i = 0; i < grad.sizes.size(); ++i) {
    RequireEqual(ctx, grad.sizes[i], output.sizes[i], "grad_output and output differ in size");
  }
  ctx.Return(Contiguous(ctx, ctx.OptionalDType(3).value(), grad.device, grad.sizes));
}

// (self, k, dim, largest, sorted)
void TopkRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  int64_t dim = NormalizeDim(ctx, ctx.ConstInt(2), self.rank());
  Dim k = ctx.Int(1);
  Dim available = self.rank() > 0 ? self.sizes[static_cast<size_t>(dim)] : Dim(1);
  if (ctx.env().Less(k, 0) || ctx.env().Less(available, k)) {
    ctx.Reject(fmt::format("k = {} is out of range for a dimension of size {}", ctx.env().Print(k),
                           ctx.env().Print(available)));
  }
  Shape sizes = self.sizes;
  if (self.rank() > 0) sizes[static_cast<size_t>(dim)] = k;
  ctx.Return(Contiguous(ctx, self.dtype, self.device, sizes));
  ctx.Return(Contiguous(ctx, DType::kInt64, self.device, std::move(sizes)));
}

template <int dim_arg>
void SortRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  NormalizeDim(ctx, ctx.ConstInt(dim_arg), self.rank());
  Shape strides = PreservedStrides(ctx.env(), self);
  ctx.Return({self.dtype, self.device, self.sizes, strides});
  ctx.Return({DType::kInt64, self.device, self.sizes, std::move(strides)});
}

// Operators of our own (kernels/row_operators.h).

DType RowSumType(DType a, DType b) {
  return a == DType::kFloat64 || b == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

void CheckDots(RuleContext& ctx, const TensorType& a, const TensorType& b) {
  if (a.rank() == 0 || b.rank() == 0) ctx.Reject("both need a dimension to add up along");
  for (DType dtype : {a.dtype, b.dtype}) {
    if (IsIntegralOrBool(dtype) || IsComplex(dtype)) ctx.Reject("needs real numbers");
  }
  RequireEqual(ctx, a.sizes.back(), b.sizes.back(), "rows must be equally long");
}

Shape WithoutLast(Shape sizes) {
  sizes.pop_back();
  return sizes;
}

// (self, other)
void RowDotsRule(RuleContext& ctx) {
  const TensorType &a = ctx.Tensor(0), &b = ctx.Tensor(1);
  CheckDots(ctx, a, b);
  Shape sizes = WithoutLast(Broadcast(ctx, a.sizes, b.sizes));
  ctx.Return(Contiguous(ctx, RowSumType(a.dtype, b.dtype), a.device, std::move(sizes)));
}

// (self, index, other): rows of `self`, which has two dimensions, at `index`
void RowDotsAtRule(RuleContext& ctx) {
  const TensorType &a = ctx.Tensor(0), &index = ctx.Tensor(1), &b = ctx.Tensor(2);
  if (a.rank() != 2 || index.dtype != DType::kInt64) {
    ctx.Reject("needs a matrix, whose rows 64-bit integers look up");
  }
  CheckDots(ctx, a, b);
  Shape looked_up = index.sizes;
  looked_up.push_back(a.sizes[1]);
  Shape sizes = WithoutLast(Broadcast(ctx, looked_up, b.sizes));
  ctx.Return(Contiguous(ctx, RowSumType(a.dtype, b.dtype), a.device, std::move(sizes)));
}

void RowLogSumExpRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  if (self.rank() == 0 || IsIntegralOrBool(self.dtype) || IsComplex(self.dtype)) {
    ctx.Reject("needs rows of real numbers");
  }
  ctx.Return(
      Contiguous(ctx, RowSumType(self.dtype, self.dtype), self.device, WithoutLast(self.sizes)));
}

// Sharding.

enum class Reduction : uint8_t {
  kOther,  // no sum: what is reduced stays whole
  kMean,   // linear, a sum of the means of shards that are equally long
  kCount,  // a sum of something that is not linear in the operand
  kSum,
};

// Dimensions that are kept, and sums over those that are not. kDims: where the dimensions are, one
// or a list, -1 for all of them; kKeep: where `keepdim` is, -1 for false.
template <Reduction kind, int kDims, int kKeep, bool empty_is_all = true>
void ReduceSharding(ShardingContext& ctx) {
  const int64_t rank = ctx.operands()[0]->rank();
  uint64_t reduced = ~uint64_t{0};
  if constexpr (kDims >= 0) {
    reduced = std::holds_alternative<Dim>(ctx.arg(kDims)) ? uint64_t{1} << DimAt(ctx, kDims, rank)
                                                          : DimBits(ctx, kDims, rank, empty_is_all);
  }
  const bool keep = kKeep >= 0 && BoolAt(ctx, kKeep);
  int8_t at = 0;
  for (int64_t d = 0; d < rank; ++d) {
    const bool gone = reduced >> d & 1;
    RowMaker row(ctx);
    row.Operand(0, static_cast<ShardState>(d));
    if (!gone) row.Results(at).Add();
    if (gone && kind == Reduction::kMean) {
      row.Results(kPartial).Method(ShardMethod::kAveraged).Even().Add();
    }
    if (gone && kind >= Reduction::kCount) row.Results(kPartial).Add();
    if (!gone || keep) ++at;
  }
  if (kind == Reduction::kSum || kind == Reduction::kMean) AddLinearRow(ctx);
}

void CumsumSharding(ShardingContext& ctx) {
  OtherDimsSharding<1>(ctx);
  AddLinearRow(ctx);
}

// Along the dimension itself ranks combine its maximum and the sum of exponentials.
void SoftmaxSharding(ShardingContext& ctx) {
  OtherDimsSharding<1>(ctx);
  const auto dim = static_cast<ShardState>(DimAt(ctx, 1, ctx.operands()[0]->rank()));
  RowMaker(ctx).Arg(0, dim).Result(0, dim).Method(ShardMethod::kStatistics, 2).Add();
}

// ... the sum of the gradients, weighted or not.
void SoftmaxBackwardSharding(ShardingContext& ctx) {
  OtherDimsSharding<2>(ctx);
  const auto dim = static_cast<ShardState>(DimAt(ctx, 2, ctx.operands()[0]->rank()));
  RowMaker row(ctx);
  row.Arg(0, dim).Arg(1, dim).Result(0, dim).Method(ShardMethod::kStatistics, 1).Add();
  AddLinearRow(ctx, {0});
}

// Dimensions that results have, and sums over the last. Linear in each operand.
void RowDotsSharding(ShardingContext& ctx) {
  const TensorType &a = *ctx.operands()[0], &b = *ctx.operands()[1];
  const TensorType& longer = a.rank() >= b.rank() ? a : b;
  Shape sizes = ctx.results()[0]->sizes;
  sizes.push_back(longer.sizes.back());
  for (size_t d = 0; d < sizes.size(); ++d) {
    const auto at_a = BroadcastState(ctx, a, sizes, d), at_b = BroadcastState(ctx, b, sizes, d);
    if (!at_a || !at_b) continue;
    const bool summed = d + 1 == sizes.size();
    RowMaker row(ctx);
    row.Operand(0, *at_a).Operand(1, *at_b);
    row.Results(summed ? kPartial : static_cast<ShardState>(d)).Add();
  }
  AddLinearRow(ctx, {0});
  AddLinearRow(ctx, {1});
}

// Along the last dimension ranks combine its maximum and the sum of exponentials.
void RowLogSumExpSharding(ShardingContext& ctx) {
  const int64_t last = ctx.operands()[0]->rank() - 1;
  for (int64_t d = 0; d < last; ++d) {
    const auto state = static_cast<ShardState>(d);
    RowMaker(ctx).Arg(0, state).Results(state).Add();
  }
  RowMaker(ctx)
      .Arg(0, static_cast<ShardState>(last))
      .Result(0, kWhole)
      .Method(ShardMethod::kStatistics, 2)
      .Add();
}

// Cost.

template <int per_element>
Dim FlopsPerInput(const CostContext& cost) {
  return cost.Tensor(0).numel() * Dim(per_element);
}

}  // namespace

void RegisterReductions(OperatorTable& table) {
  OperatorGroup reductions(table, {.work = Work::kReduction, .order = DimOrder::kKept});
  auto add = [&reductions](std::string_view schema, ShapeRule rule, ShardingRule sharding,
                           CostRule flops = FlopsPerInput<1>) -> Operator& {
    Operator& op = reductions.Add(schema, rule);
    op.flops = flops;
    op.sharding = sharding;
    return op;
  };
  // Nothing that is sharded could be left of those that reduce everything.
  constexpr ShardingRule kNothingLeft = nullptr;
  constexpr auto kOther = Reduction::kOther;
  add("aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor", SumAllRule,
      ReduceSharding<Reduction::kSum, -1, -1>);
  add("aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? "
      "dtype=None) -> Tensor",
      SumRule, ReduceSharding<Reduction::kSum, 1, 2>);
  add("aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) "
      "-> Tensor",
      SumRule, ReduceSharding<Reduction::kCount, 1, 2>);
  add("aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor", MeanAllRule,
      ReduceSharding<Reduction::kMean, -1, -1>);
  add("aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> "
      "Tensor",
      MeanRule, ReduceSharding<Reduction::kMean, 1, 2>);
  add("aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor", SumAllRule, kNothingLeft);
  add("aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> "
      "Tensor",
      ProdDimRule, ReduceSharding<kOther, 1, 2>);
  add("aten::count_nonzero(Tensor self, int? dim=None) -> Tensor", CountNonzeroAllRule,
      ReduceSharding<Reduction::kCount, 1, -1>);
  add("aten::count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor", CountNonzeroRule,
      ReduceSharding<Reduction::kCount, 1, -1>);

  add("aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", ExtremumRule,
      ReduceSharding<kOther, 1, 2>);
  add("aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor", ExtremumRule,
      ReduceSharding<kOther, 1, 2>);
  add("aten::max(Tensor self) -> Tensor", ExtremumAllRule, kNothingLeft).recompute =
      RecomputeClass::kWholeTensor;
  add("aten::min(Tensor self) -> Tensor", ExtremumAllRule, kNothingLeft);
  add("aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
      ExtremumWithIndexRule, ReduceSharding<kOther, 1, 2>);
  add("aten::min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
      ExtremumWithIndexRule, ReduceSharding<kOther, 1, 2>);
  add("aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", ArgExtremumRule,
      ReduceSharding<kOther, 1, 2>);
  add("aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", ArgExtremumRule,
      ReduceSharding<kOther, 1, 2>);
  add("aten::any(Tensor self) -> Tensor", TruthAllRule, kNothingLeft);
  add("aten::any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", TruthDimRule,
      ReduceSharding<kOther, 1, 2>);
  add("aten::any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", TruthDimsRule,
      ReduceSharding<kOther, 1, 2, false>);
  add("aten::all(Tensor self) -> Tensor", TruthAllRule, kNothingLeft);
  add("aten::all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor", TruthDimRule,
      ReduceSharding<kOther, 1, 2>);
  add("aten::all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", TruthDimsRule,
      ReduceSharding<kOther, 1, 2, false>);

  add("aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", LogSumExpRule,
      ReduceSharding<kOther, 1, 2>, FlopsPerInput<4>);
  add("aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool "
      "keepdim=False) -> Tensor",
      VarRule, ReduceSharding<kOther, 1, 3>, FlopsPerInput<4>);
  add("aten::std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool "
      "keepdim=False) -> Tensor",
      VarRule, ReduceSharding<kOther, 1, 3>, FlopsPerInput<4>);
  add("aten::var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool "
      "keepdim=False) -> "
      "(Tensor, Tensor)",
      VarMeanRule, ReduceSharding<kOther, 1, 3>, FlopsPerInput<4>);
  add("aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, "
      "*, ScalarType? "
      "dtype=None) -> Tensor",
      VectorNormRule, ReduceSharding<kOther, 2, 3>, FlopsPerInput<2>);
  add("aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor", NormAllRule, kNothingLeft,
      FlopsPerInput<2>);
  add("aten::norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor",
      NormRule, ReduceSharding<kOther, 2, 3>, FlopsPerInput<2>);
  add("aten::norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, "
      "ScalarType dtype) -> Tensor",
      NormRule, ReduceSharding<kOther, 2, 3>, FlopsPerInput<2>);

  add("aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", ScanRule,
      CumsumSharding);
  add("aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor", ScanRule,
      OtherDimsSharding<1>);
  // Softmax: maximum, subtraction, exponential, sum, division. Its gradient: product, sum, product,
  // subtraction.
  add("aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", SoftmaxRule,
      SoftmaxSharding, FlopsPerInput<5>);
  add("aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", SoftmaxRule,
      SoftmaxSharding, FlopsPerInput<5>);
  add("aten::_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType "
      "input_dtype) -> Tensor",
      SoftmaxBackwardRule, SoftmaxBackwardSharding, FlopsPerInput<4>);
  add("aten::_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType "
      "input_dtype) -> Tensor",
      SoftmaxBackwardRule, SoftmaxBackwardSharding, FlopsPerInput<4>);

  add("gt::row_dots(Tensor self, Tensor other) -> Tensor", RowDotsRule, RowDotsSharding,
      FlopsPerInput<2>);
  Operator& dots_at = add("gt::row_dots_at(Tensor self, Tensor index, Tensor other) -> Tensor",
                          RowDotsAtRule, kNothingLeft, FlopsPerInput<2>);
  dots_at.order = DimOrder::kUnknown;
  dots_at.integers = IntegerOperands::kIndices;
  add("gt::log_sum_exp(Tensor self) -> Tensor", RowLogSumExpRule, RowLogSumExpSharding,
      FlopsPerInput<4>);

  OperatorGroup sorted(
      table, {.work = Work::kReduction, .order = DimOrder::kReordered, .flops = FlopsPerInput<1>});
  Operator& topk = sorted.Add(
      "aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> "
      "(Tensor values, Tensor "
      "indices)",
      TopkRule);
  topk.recompute = RecomputeClass::kRouting;
  topk.sharding = OtherDimsSharding<2>;
  sorted
      .Add(
          "aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor "
          "indices)",
          SortRule<1>)
      .sharding = OtherDimsSharding<1>;
  Operator& stable = sorted.Add(
      "aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> "
      "(Tensor values, Tensor "
      "indices)",
      SortRule<2>);
  stable.integers = IntegerOperands::kIndices;
  stable.sharding = OtherDimsSharding<2>;
}

}  // namespace gt
