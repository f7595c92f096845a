// Operators that compute each result element from the elements at the same place: arithmetic,
// comparisons, activations and their gradients, conversions. Nearly all of them are one
// TensorIterator loop in libtorch, and their rule is one line.
#include "gt/base/error.h"
#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/sharding_rules.h"

namespace gt {
namespace {

using namespace rules;  // NOLINT: the vocabulary of this file

// One input.

void UnaryRule(RuleContext& ctx) { ctx.Return(PointwiseResult(ctx, {0}, Compute::kSame)); }
void UnaryFloatRule(RuleContext& ctx) { ctx.Return(PointwiseResult(ctx, {0}, Compute::kFloat)); }

// The result is allocated by empty_like before the kernel runs.
void LikeRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return({self.dtype, self.device, self.sizes, PreservedStrides(ctx.env(), self)});
}

void AbsRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  if (!IsComplex(self.dtype)) return UnaryRule(ctx);
  ctx.Return({RealOf(self.dtype), self.device, self.sizes, PreservedStrides(ctx.env(), self)});
}

// abs(x) == infinity for floating point, a tensor of zeros for integers.
void IsInfRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  if (IsComplex(self.dtype)) ctx.Reject("complex tensors are not supported");
  if (IsIntegralOrBool(self.dtype)) {
    ctx.Return({DType::kBool, self.device, self.sizes, PreservedStrides(ctx.env(), self)});
    return;
  }
  TensorType magnitude = Pointwise(ctx).AddTensor(self).Result(self.dtype);
  ctx.Return(Pointwise(ctx).AddTensor(magnitude).AddNumber().Result(DType::kBool));
}

// x != x: one input given twice.
void IsNanRule(RuleContext& ctx) { ctx.Return(PointwiseResult(ctx, {0, 0}, Compute::kBool)); }

// Two inputs, tensors or numbers.

void BinaryRule(RuleContext& ctx) { ctx.Return(PointwiseResult(ctx, {0, 1}, Compute::kSame)); }
void BinaryFloatRule(RuleContext& ctx) {
  ctx.Return(PointwiseResult(ctx, {0, 1}, Compute::kFloat));
}
void ComparisonRule(RuleContext& ctx) { ctx.Return(PointwiseResult(ctx, {0, 1}, Compute::kBool)); }
void ReversedRule(RuleContext& ctx) { ctx.Return(PointwiseResult(ctx, {1, 0}, Compute::kSame)); }

void LogicalNotRule(RuleContext& ctx) { ctx.Return(Pointwise(ctx).Add(0).Result(DType::kBool)); }

template <bool reversed>
void SubRule(RuleContext& ctx) {
  for (int arg : {0, 1}) {
    DType dtype = ctx.IsNumber(arg) ? NumberType(ctx.arg(arg)) : ctx.Tensor(arg).dtype;
    if (dtype == DType::kBool) ctx.Reject("bool tensors cannot be subtracted; use logical_xor");
  }
  reversed ? ReversedRule(ctx) : BinaryRule(ctx);
}

// Without a rounding mode this is true division, with one it stays among integers.
void DivModeRule(RuleContext& ctx) {
  if (ctx.IsNone(2)) return BinaryFloatRule(ctx);
  const std::string& mode = ctx.String(2);
  if (mode != "trunc" && mode != "floor") {
    ctx.Reject(fmt::format("rounding_mode must be \"trunc\" or \"floor\", not \"{}\"", mode));
  }
  BinaryRule(ctx);
}

// The base is converted before the kernel, on every device.
void PowScalarRule(RuleContext& ctx) {
  DType common = ResultType(ctx, {0, 1});
  ctx.Return(Pointwise(ctx).AddConverted(0, common).Result(common));
}

void PowBaseRule(RuleContext& ctx) {
  const TensorType& exponent = ctx.Tensor(1);
  ctx.Return(Contiguous(ctx, ResultType(ctx, {0, 1}), exponent.device, exponent.sizes));
}

// Clamp.

void ClampScalarsRule(RuleContext& ctx) {
  if (ctx.IsNone(1) && ctx.IsNone(2)) ctx.Reject("one of min and max must be given");
  DType common = ResultType(ctx, {0, 1, 2});
  ctx.Return(Pointwise(ctx).AddConverted(0, common).Result(common));
}
void ClampTensorsRule(RuleContext& ctx) {
  if (ctx.IsNone(1) && ctx.IsNone(2)) ctx.Reject("one of min and max must be given");
  ctx.Return(PointwiseResult(ctx, {0, 1, 2}, Compute::kSame));
}
void ClampOneScalarRule(RuleContext& ctx) {
  DType common = ResultType(ctx, {0, 1});
  ctx.Return(Pointwise(ctx).AddConverted(0, common).Result(common));
}

// Three inputs.

void TernaryRule(RuleContext& ctx) { ctx.Return(PointwiseResult(ctx, {0, 1, 2}, Compute::kSame)); }

// Both sides are converted before the kernel, on every device; the condition never is.
void WhereRule(RuleContext& ctx) {
  const TensorType& condition = ctx.Tensor(0);
  if (condition.dtype != DType::kBool && condition.dtype != DType::kUInt8) {
    ctx.Reject("the condition must be a bool tensor");
  }
  DType common = ResultType(ctx, {1, 2});
  Pointwise pointwise(ctx);
  pointwise.Add(0).AddConverted(1, common).AddConverted(2, common);
  ctx.Return(pointwise.Result(common));
}

void MaskedFillRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  const TensorType& mask = ctx.Tensor(1);
  if (mask.dtype != DType::kBool) ctx.Reject("the mask must be a bool tensor");
  if (!ctx.IsNumber(2) && ctx.Tensor(2).rank() != 0)
    ctx.Reject("the value must have no dimensions");
  ctx.Return(Contiguous(ctx, self.dtype, self.device, Broadcast(ctx, self.sizes, mask.sizes)));
}

// Copies.

void CloneRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return(
      {self.dtype, self.device, self.sizes,
       StridesInFormat(ctx.env(), self, ctx.OptionalMemoryFormat(1), MemoryFormat::kPreserve)});
}

// (self, dtype, layout, device, pin_memory, non_blocking, memory_format)
void ToCopyRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return(
      {ctx.OptionalDType(1).value_or(self.dtype), ctx.OptionalDevice(3).value_or(self.device),
       self.sizes,
       StridesInFormat(ctx.env(), self, ctx.OptionalMemoryFormat(6), MemoryFormat::kPreserve)});
}

// What functionalization makes of copy_: a tensor laid out like self, gaps included, unless self
// overlaps itself.
void CopyRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  Shape sizes = Broadcast(ctx, self.sizes, ctx.Tensor(1).sizes);
  if (sizes.size() != self.sizes.size()) ctx.Reject("the source has more dimensions than self");
  bool overlaps = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    RequireEqual(ctx, self.sizes[i], sizes[i], "the source does not broadcast to self");
    overlaps |= self.strides[i].Is(0) && !self.sizes[i].Is(1) && !ctx.env().IsOne(self.sizes[i]);
  }
  ctx.Return({self.dtype, self.device, self.sizes,
              overlaps ? PreservedStrides(ctx.env(), self) : self.strides});
}

// Complex numbers.

void MakeComplexRule(RuleContext& ctx) {
  const TensorType& a = ctx.Tensor(0);
  if (a.dtype != ctx.Tensor(1).dtype || !IsFloating(a.dtype)) {
    ctx.Reject("both parts must be floating-point tensors of one dtype");
  }
  ctx.Return(Pointwise(ctx).Add(0).Add(1).Result(ComplexOf(a.dtype)));
}

// Activations that are not one plain loop.

void LogSigmoidRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  if (self.device.kind == DeviceKind::kCpu) {
    ctx.Return(Contiguous(ctx, self.dtype, self.device, self.sizes));
    ctx.Return(Contiguous(ctx, self.dtype, self.device, self.sizes));
  } else {
    // Only the CPU kernel keeps exp(-|x|) for the gradient; CUDA returns an empty placeholder.
    ctx.Return({self.dtype, self.device, self.sizes, PreservedStrides(ctx.env(), self)});
    ctx.Return(Contiguous(ctx, self.dtype, self.device, {Dim(0)}));
  }
}

// A check the step performs: no results, and dead-code elimination leaves it alone.
void AssertRule(RuleContext&) {}

// Cost.

// Per element of the result. An exponential, a root or a division counts as one operation.
template <int per_element>
Dim FlopsPerElement(const CostContext& cost) {
  return cost.results[0]->numel() * Dim(per_element);
}
Dim MulFlops(const CostContext& cost) {
  const TensorType& result = *cost.results[0];
  return result.numel() * Dim(IsComplex(result.dtype) ? 6 : 1);
}
// Addition with alpha: the kernel multiplies only if alpha is not 1.
Dim AddFlops(const CostContext& cost) {
  const TensorType& result = *cost.results[0];
  const Dim* alpha = std::get_if<Dim>(&cost.args[2]);
  int64_t per_element = (IsComplex(result.dtype) ? 2 : 1) * (alpha && alpha->Is(1) ? 1 : 2);
  return result.numel() * Dim(per_element);
}

// Sharding.

// Either factor may be a partial sum, but not both.
void MulSharding(ShardingContext& ctx) {
  AddPointwiseRows(ctx);
  AddLinearRow(ctx, {0});
  AddLinearRow(ctx, {1});
}
void ScaleSharding(ShardingContext& ctx) { LinearInSharding<0>(ctx); }
// Linear in the first two operands together, a third one given.
void SumSharding(ShardingContext& ctx) { LinearInSharding<0, 1>(ctx); }
// The condition decides, the sides are chosen from. A side that is the number zero adds nothing.
void WhereSharding(ShardingContext& ctx) {
  LinearInSharding<1, 2>(ctx);
  if (NumberAt(ctx, 2) == 0.0) AddLinearRow(ctx, {1});
  if (NumberAt(ctx, 1) == 0.0) AddLinearRow(ctx, {2});
}

// What is filled in would be added once per rank, unless it is zero.
void MaskedFillSharding(ShardingContext& ctx) {
  AddPointwiseRows(ctx);
  if (NumberAt(ctx, 2) == 0.0) AddLinearRow(ctx, {0});
}
// Nothing of self but its type is used.
void CopySharding(ShardingContext& ctx) { LinearInSharding<1>(ctx); }
void FillSharding(ShardingContext& ctx) {
  AddPointwiseRows(ctx);
  RowMaker(ctx).Operand(0, kPartial).Add();
}

}  // namespace

void RegisterElementwise(OperatorTable& table) {
  OperatorGroup t(
      table, {.work = Work::kPointwise, .order = DimOrder::kKept, .sharding = PointwiseSharding});
  // Linear in the gradient, their first operand.
  OperatorGroup gradients(
      table, {.work = Work::kPointwise, .order = DimOrder::kKept, .sharding = ScaleSharding});
  Operator& add =
      t.Add("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", BinaryRule);
  add.flops = AddFlops;
  add.linearity = Linearity::kAllOperands;
  add.converts_operands = true;
  add.sharding = SumSharding;
  t.Add("aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", BinaryRule).flops =
      AddFlops;
  Operator& sub = t.Add("aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
                        SubRule<false>);
  sub.flops = AddFlops;
  sub.converts_operands = true;
  sub.sharding = SumSharding;
  t.Add("aten::sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", SubRule<false>)
      .flops = AddFlops;
  Operator& rsub = t.Add(
      "aten::rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", SubRule<true>);
  rsub.flops = AddFlops;
  rsub.sharding = SumSharding;
  t.Add("aten::rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", SubRule<true>)
      .flops = AddFlops;
  Operator& mul = t.Add("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor", BinaryRule);
  mul.flops = MulFlops;
  mul.linearity = Linearity::kOneOperand;
  mul.converts_operands = true;
  mul.sharding = MulSharding;
  Operator& scale = t.Add("aten::mul.Scalar(Tensor self, Scalar other) -> Tensor", BinaryRule);
  scale.flops = MulFlops;
  scale.linearity = Linearity::kOneOperand;
  scale.sharding = ScaleSharding;
  Operator& div = t.Add("aten::div.Tensor(Tensor self, Tensor other) -> Tensor", BinaryFloatRule);
  div.linearity = Linearity::kOneOperand;
  div.converts_operands = true;
  div.sharding = ScaleSharding;
  t.Add("aten::div.Scalar(Tensor self, Scalar other) -> Tensor", BinaryFloatRule).sharding =
      ScaleSharding;
  t.Add("aten::div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
        DivModeRule);
  t.Add("aten::div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor",
        DivModeRule);
  for (const char* schema : {
           "aten::floor_divide(Tensor self, Tensor other) -> Tensor",
           "aten::floor_divide.Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::remainder.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::remainder.Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::fmod.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::fmod.Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::minimum(Tensor self, Tensor other) -> Tensor",
           "aten::maximum(Tensor self, Tensor other) -> Tensor",
           "aten::bitwise_and.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::bitwise_and.Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::bitwise_or.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::bitwise_or.Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::bitwise_xor.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::bitwise_xor.Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::bitwise_left_shift.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::bitwise_left_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::bitwise_right_shift.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::bitwise_right_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor",
           "aten::logaddexp(Tensor self, Tensor other) -> Tensor",
       }) {
    t.Add(schema, BinaryRule);
  }
  t.Add("aten::atan2(Tensor self, Tensor other) -> Tensor", BinaryFloatRule);
  t.Add("aten::xlogy.Tensor(Tensor self, Tensor other) -> Tensor", BinaryFloatRule).flops =
      FlopsPerElement<2>;
  t.Add("aten::pow.Scalar(Scalar self, Tensor exponent) -> Tensor", PowBaseRule);
  t.Add("aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor", PowScalarRule);

  for (const char* schema : {
           "aten::eq.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::eq.Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::ne.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::ne.Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::lt.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::lt.Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::le.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::le.Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::gt.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::gt.Scalar(Tensor self, Scalar other) -> Tensor",
           "aten::ge.Tensor(Tensor self, Tensor other) -> Tensor",
           "aten::ge.Scalar(Tensor self, Scalar other) -> Tensor",
       }) {
    t.Add(schema, ComparisonRule);
  }
  t.Add("aten::logical_and(Tensor self, Tensor other) -> Tensor", ComparisonRule);
  t.Add("aten::logical_or(Tensor self, Tensor other) -> Tensor", ComparisonRule);
  t.Add("aten::logical_xor(Tensor self, Tensor other) -> Tensor", ComparisonRule);
  t.Add("aten::logical_not(Tensor self) -> Tensor", LogicalNotRule);

  Operator& neg = t.Add("aten::neg(Tensor self) -> Tensor", UnaryRule);
  neg.linearity = Linearity::kOneOperand;
  neg.sharding = ScaleSharding;
  for (const char* schema : {
           "aten::relu(Tensor self) -> Tensor",
           "aten::bitwise_not(Tensor self) -> Tensor",
           "aten::floor(Tensor self) -> Tensor",
           "aten::ceil(Tensor self) -> Tensor",
           "aten::round(Tensor self) -> Tensor",
           "aten::trunc(Tensor self) -> Tensor",
           "aten::frac(Tensor self) -> Tensor",
           "aten::sign(Tensor self) -> Tensor",
           "aten::sgn(Tensor self) -> Tensor",
       }) {
    t.Add(schema, UnaryRule);
  }
  t.Add(
      "aten::nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> "
      "Tensor",
      LikeRule);
  t.Add("aten::round.decimals(Tensor self, *, int decimals) -> Tensor", UnaryRule).flops =
      FlopsPerElement<3>;
  t.Add("aten::abs(Tensor self) -> Tensor", AbsRule);
  for (const char* schema : {
           "aten::reciprocal(Tensor self) -> Tensor",
           "aten::exp(Tensor self) -> Tensor",
           "aten::exp2(Tensor self) -> Tensor",
           "aten::expm1(Tensor self) -> Tensor",
           "aten::log(Tensor self) -> Tensor",
           "aten::log2(Tensor self) -> Tensor",
           "aten::log1p(Tensor self) -> Tensor",
           "aten::sqrt(Tensor self) -> Tensor",
           "aten::sin(Tensor self) -> Tensor",
           "aten::cos(Tensor self) -> Tensor",
           "aten::tan(Tensor self) -> Tensor",
           "aten::sinh(Tensor self) -> Tensor",
           "aten::cosh(Tensor self) -> Tensor",
           "aten::asin(Tensor self) -> Tensor",
           "aten::acos(Tensor self) -> Tensor",
           "aten::atan(Tensor self) -> Tensor",
           "aten::erf(Tensor self) -> Tensor",
           "aten::erfc(Tensor self) -> Tensor",
       }) {
    t.Add(schema, UnaryFloatRule);
  }
  t.Add("aten::rsqrt(Tensor self) -> Tensor", UnaryFloatRule).flops = FlopsPerElement<2>;
  t.Add("aten::tanh(Tensor self) -> Tensor", UnaryFloatRule).flops = FlopsPerElement<4>;
  t.Add("aten::sigmoid(Tensor self) -> Tensor", UnaryFloatRule).flops = FlopsPerElement<4>;
  t.Add("aten::isnan(Tensor self) -> Tensor", IsNanRule);
  t.Add("aten::isinf(Tensor self) -> Tensor", IsInfRule);

  t.Add("aten::silu(Tensor self) -> Tensor", UnaryRule).flops = FlopsPerElement<5>;
  gradients.Add("aten::silu_backward(Tensor grad_output, Tensor self) -> Tensor", BinaryRule)
      .flops = FlopsPerElement<9>;
  t.Add("aten::gelu(Tensor self, *, str approximate=\"none\") -> Tensor", UnaryRule).flops =
      FlopsPerElement<8>;
  gradients
      .Add(
          "aten::gelu_backward(Tensor grad_output, Tensor self, *, str approximate=\"none\") -> "
          "Tensor",
          BinaryRule)
      .flops = FlopsPerElement<14>;
  gradients.Add(
      "aten::threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor",
      ReversedRule);
  gradients.Add("aten::sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor", BinaryRule)
      .flops = FlopsPerElement<3>;
  gradients.Add("aten::tanh_backward(Tensor grad_output, Tensor output) -> Tensor", BinaryRule)
      .flops = FlopsPerElement<3>;
  t.Add("aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor", UnaryRule)
      .flops = FlopsPerElement<5>;
  gradients
      .Add(
          "aten::softplus_backward(Tensor grad_output, Tensor self, Scalar beta, Scalar threshold) "
          "-> "
          "Tensor",
          BinaryRule)
      .flops = FlopsPerElement<6>;
  t.Add("aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor", LikeRule)
      .flops = FlopsPerElement<2>;
  gradients
      .Add(
          "aten::hardtanh_backward(Tensor grad_output, Tensor self, Scalar min_val, Scalar "
          "max_val) "
          "-> Tensor",
          BinaryRule)
      .flops = FlopsPerElement<2>;
  t.Add("aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor", UnaryRule);
  gradients.Add(
      "aten::leaky_relu_backward(Tensor grad_output, Tensor self, Scalar negative_slope, bool "
      "self_is_result) -> Tensor",
      ReversedRule);
  t.Add("aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
        UnaryRule)
      .flops = FlopsPerElement<4>;
  t.Add("aten::log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)", LogSigmoidRule)
      .flops = FlopsPerElement<5>;
  gradients
      .Add("aten::log_sigmoid_backward(Tensor grad_output, Tensor self, Tensor buffer) -> Tensor",
           LikeRule)
      .flops = FlopsPerElement<5>;

  t.Add("aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", ClampScalarsRule)
      .flops = FlopsPerElement<2>;
  t.Add("aten::clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor",
        ClampTensorsRule)
      .flops = FlopsPerElement<2>;
  t.Add("aten::clamp_min(Tensor self, Scalar min) -> Tensor", ClampOneScalarRule);
  t.Add("aten::clamp_max(Tensor self, Scalar max) -> Tensor", ClampOneScalarRule);
  t.Add("aten::clamp_min.Tensor(Tensor self, Tensor min) -> Tensor", BinaryRule);
  t.Add("aten::clamp_max.Tensor(Tensor self, Tensor max) -> Tensor", BinaryRule);

  t.Add("aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor", WhereRule)
      .sharding = WhereSharding;
  t.Add("aten::masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor",
        MaskedFillRule)
      .sharding = MaskedFillSharding;
  t.Add("aten::masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> Tensor",
        MaskedFillRule);
  OperatorGroup sums(table,
                     {.work = Work::kPointwise, .order = DimOrder::kKept, .sharding = SumSharding});
  sums.Add(
          "aten::addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
          TernaryRule)
      .flops = FlopsPerElement<3>;
  sums.Add(
          "aten::addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
          TernaryRule)
      .flops = FlopsPerElement<3>;
  sums.Add("aten::lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor", BinaryRule)
      .flops = FlopsPerElement<3>;
  sums.Add("aten::lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor", TernaryRule)
      .flops = FlopsPerElement<3>;

  t.Add("aten::polar(Tensor abs, Tensor angle) -> Tensor", MakeComplexRule).flops =
      FlopsPerElement<4>;
  sums.Add("aten::complex(Tensor real, Tensor imag) -> Tensor", MakeComplexRule).flops = NoFlops;
  t.Add("aten::_conj_physical(Tensor self) -> Tensor", LikeRule).sharding = ScaleSharding;

  OperatorGroup copies(table, {.work = Work::kClone,
                               .order = DimOrder::kKept,
                               .flops = NoFlops,
                               .sharding = LinearSharding,
                               .linearity = Linearity::kOneOperand});
  copies.Add("aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", CloneRule);
  copies.Add(
      "aten::_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? "
      "device=None, "
      "bool? pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> "
      "Tensor",
      ToCopyRule);
  table.Add(
      "aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", CopyRule,
      {.work = Work::kMove, .order = DimOrder::kKept, .flops = NoFlops, .sharding = CopySharding});
  OperatorGroup fills(
      table,
      {.work = Work::kFill, .order = DimOrder::kKept, .flops = NoFlops, .sharding = FillSharding});
  fills.Add("aten::fill.Scalar(Tensor self, Scalar value) -> Tensor", LikeRule);
  fills.Add("aten::fill.Tensor(Tensor self, Tensor value) -> Tensor", LikeRule);
  fills.Add("aten::zero(Tensor self) -> Tensor", LikeRule);

  OperatorGroup checks(table, {.work = Work::kPointwise,
                               .order = DimOrder::kUnknown,
                               .flops = NoFlops,
                               .side_effect = true});
  checks.Add("aten::_assert_async(Tensor self) -> ()", AssertRule);
  checks.Add("aten::_assert_async.msg(Tensor self, str assert_msg) -> ()", AssertRule);
}

}  // namespace gt
