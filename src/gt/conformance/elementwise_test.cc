// Cases of ops/elementwise.cc.
#include "gt/conformance/harness.h"

namespace gt::conformance::elementwise_test {
namespace {

// Two operands of one broadcast shape; the second may be a number.
void Operands(Case& c, DType first, DType second, bool number_allowed = true) {
  // Half precision and complex together would be complex numbers of half precision, which graphs do
  // not know.
  if (first == DType::kFloat16 && IsComplex(second)) first = DType::kBFloat16;
  if (second == DType::kFloat16 && IsComplex(first)) second = DType::kBFloat16;
  Shape shape = c.RandomShape(0, 4);
  c.Tensor(first, c.BroadcastOperand(shape));
  if (number_allowed && c.Chance(0.15)) {
    c.RandomNumber();
  } else if (c.Chance(0.08) && first == second) {
    c.SameTensor();
  } else {
    c.Tensor(second, c.BroadcastOperand(shape));
  }
}

template <typename Types>
void Unary(Case& c, const Types& types) {
  c.Tensor(c.Pick(types), c.RandomShape(0, 4));
}

Conform kArithmetic({"aten::mul.Tensor", "aten::div.Tensor", "aten::eq.Tensor", "aten::ne.Tensor"},
                    [](Case& c) { Operands(c, c.Pick(kAllTypes), c.Pick(kAllTypes)); });
// With a complex tensor and a number libtorch's CUDA kernel fails an assertion of its own.
Conform kLogical({"aten::logical_and", "aten::logical_or", "aten::logical_xor"}, [](Case& c) {
  Operands(c, c.Pick(kAllTypes), c.Pick(kAllTypes), !Case::on_cuda());
});
Conform kAdd("aten::add.Tensor", [](Case& c) {
  Operands(c, c.Pick(kAllTypes), c.Pick(kAllTypes));
  if (c.Chance(0.2)) c.Int(2);
});
Conform kSub({"aten::sub.Tensor", "aten::rsub.Tensor"}, [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  c.Tensor(c.Pick({DType::kComplex64, DType::kFloat32}), c.BroadcastOperand(shape));
  c.Tensor(c.Pick({DType::kBFloat16, DType::kFloat64, DType::kInt32}), c.BroadcastOperand(shape));
});
Conform kSubBool({"aten::sub.Tensor", "aten::rsub.Tensor"}, [](Case& c) {
  Operands(c, c.Pick(kNumberTypes), c.Pick(kNonComplexTypes), false);
});
Conform kScalars({"aten::add.Scalar", "aten::mul.Scalar", "aten::div.Scalar", "aten::eq.Scalar",
                  "aten::ne.Scalar"},
                 [](Case& c) { c.Tensor(c.Pick(kAllTypes), c.RandomShape(0, 4)).RandomNumber(); });
Conform kSubScalar({"aten::sub.Scalar", "aten::rsub.Scalar"}, [](Case& c) {
  c.Tensor(c.Pick(kNumberTypes), c.RandomShape(0, 4));
  c.Chance() ? c.Int(c.Random(1, 3)) : c.Float(0.5);
});

void RoundingMode(Case& c) {
  switch (c.Random(0, 2)) {
    case 0:
      c.None();
      break;
    case 1:
      c.Arg(std::string("trunc"));
      break;
    default:
      c.Arg(std::string("floor"));
  }
}
Conform kDivMode("aten::div.Tensor_mode", [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  c.Tensor(c.Pick(kNumberTypes), c.BroadcastOperand(shape));
  c.Tensor(c.Pick(kNumberTypes), c.BroadcastOperand(shape));
  RoundingMode(c);
});
Conform kDivScalarMode("aten::div.Scalar_mode", [](Case& c) {
  c.Tensor(c.Pick(kNumberTypes), c.RandomShape(0, 4));
  c.Chance() ? c.Int(c.Random(1, 3)) : c.Float(0.5);
  RoundingMode(c);
});
Conform kRealBinary({"aten::floor_divide", "aten::remainder.Tensor", "aten::fmod.Tensor",
                     "aten::minimum", "aten::maximum", "aten::lt.Tensor", "aten::le.Tensor",
                     "aten::gt.Tensor", "aten::ge.Tensor", "aten::pow.Tensor_Tensor", "aten::atan2",
                     "aten::clamp_min.Tensor", "aten::clamp_max.Tensor"},
                    [](Case& c) {
                      Shape shape = c.RandomShape(0, 4);
                      c.Tensor(c.Pick(kNumberTypes), c.BroadcastOperand(shape));
                      c.Tensor(c.Pick(kNumberTypes), c.BroadcastOperand(shape));
                    });
Conform kRealScalar({"aten::floor_divide.Scalar", "aten::remainder.Scalar", "aten::fmod.Scalar",
                     "aten::lt.Scalar", "aten::le.Scalar", "aten::gt.Scalar", "aten::ge.Scalar",
                     "aten::clamp_min", "aten::clamp_max"},
                    [](Case& c) {
                      c.Tensor(c.Pick(kNumberTypes), c.RandomShape(0, 4));
                      c.Chance() ? c.Int(c.Random(1, 3)) : c.Float(0.5);
                    });
Conform kXlogy("aten::xlogy.Tensor",
               [](Case& c) { Operands(c, c.Pick(kNonComplexTypes), c.Pick(kNonComplexTypes)); });
Conform kLogAddExp("aten::logaddexp", [](Case& c) {
  DType dtype = c.Pick(kRealTypes);
  Operands(c, dtype, dtype, false);
});

constexpr DType kBitTypes[] = {DType::kBool, DType::kUInt8, DType::kInt8, DType::kInt32,
                               DType::kInt64};
Conform kBits({"aten::bitwise_and.Tensor", "aten::bitwise_or.Tensor", "aten::bitwise_xor.Tensor"},
              [](Case& c) { Operands(c, c.Pick(kBitTypes), c.Pick(kBitTypes), false); });
Conform kBitScalars({"aten::bitwise_and.Scalar", "aten::bitwise_or.Scalar",
                     "aten::bitwise_xor.Scalar"},
                    [](Case& c) {
                      c.Tensor(c.Pick(kBitTypes), c.RandomShape(0, 4));
                      c.Chance() ? c.Int(c.Random(1, 3)) : c.Bool(c.Chance());
                    });
Conform kShifts({"aten::bitwise_left_shift.Tensor", "aten::bitwise_right_shift.Tensor"},
                [](Case& c) { Operands(c, c.Pick(kIntTypes), c.Pick(kIntTypes), false); });
Conform kShiftScalars({"aten::bitwise_left_shift.Tensor_Scalar",
                       "aten::bitwise_right_shift.Tensor_Scalar"},
                      [](Case& c) {
                        c.Tensor(c.Pick(kIntTypes), c.RandomShape(0, 4)).Int(c.Random(1, 3));
                      });
Conform kPowScalar("aten::pow.Tensor_Scalar", [](Case& c) {
  c.Tensor(c.Pick(kAllTypes), c.RandomShape(0, 4)).RandomNumber();
});
Conform kPowBase("aten::pow.Scalar", [](Case& c) {
  c.RandomNumber().Tensor(c.Pick(kNumberTypes), c.RandomShape(0, 4));
});

Conform kUnaryAll({"aten::logical_not", "aten::isnan", "aten::sgn"},
                  [](Case& c) { Unary(c, kAllTypes); });
Conform kNeg({"aten::neg", "aten::abs"},
             [](Case& c) { c.Chance() ? Unary(c, kNumberTypes) : Unary(c, kFloatTypes); });
Conform kNanToNum("aten::nan_to_num", [](Case& c) { Unary(c, kAllTypes); });
Conform kUnaryNumber({"aten::relu", "aten::floor", "aten::ceil", "aten::round", "aten::trunc"},
                     [](Case& c) { Unary(c, kNumberTypes); });
Conform kSign("aten::sign", [](Case& c) { Unary(c, kNonComplexTypes); });
Conform kFrac("aten::frac", [](Case& c) { Unary(c, kRealTypes); });
Conform kRoundDecimals("aten::round.decimals", [](Case& c) {
  Unary(c, kRealTypes);
  c.Int(c.Random(-1, 2));
});
Conform kBitNot("aten::bitwise_not", [](Case& c) { Unary(c, kBitTypes); });
Conform kUnaryFloat({"aten::reciprocal", "aten::exp", "aten::exp2", "aten::expm1", "aten::log",
                     "aten::log2", "aten::log1p", "aten::sqrt", "aten::rsqrt", "aten::sin",
                     "aten::cos", "aten::tan", "aten::sinh", "aten::cosh", "aten::asin",
                     "aten::acos", "aten::atan", "aten::tanh", "aten::sigmoid"},
                    [](Case& c) { Unary(c, kAllTypes); });
Conform kUnaryReal({"aten::erf", "aten::erfc", "aten::isinf"},
                   [](Case& c) { Unary(c, kNonComplexTypes); });
Conform kActivations({"aten::silu", "aten::gelu", "aten::softplus", "aten::hardtanh",
                      "aten::leaky_relu", "aten::elu", "aten::log_sigmoid_forward"},
                     [](Case& c) { Unary(c, kRealTypes); });

// Gradients take tensors of one shape from autograd, in any layout.
void GradientPair(Case& c, DType dtype, const TensorOptions& options = {}) {
  Shape shape = c.RandomShape(0, 4);
  c.Tensor(dtype, shape, options).Tensor(dtype, c.MustEqual(shape), options);
}
Conform kGradients({"aten::silu_backward", "aten::sigmoid_backward", "aten::tanh_backward"},
                   [](Case& c) { GradientPair(c, c.Pick(kRealTypes)); });
// The bf16 kernel of oneDNN cannot describe tensors that overlap themselves.
Conform kGeluGradient("aten::gelu_backward", [](Case& c) {
  GradientPair(c, c.Pick(kRealTypes), {.layout = LayoutChoice::kRegular});
});
Conform kThreshold("aten::threshold_backward", [](Case& c) {
  GradientPair(c, c.Pick(kRealTypes));
  c.Int(0);
});
Conform kSoftplusGradient("aten::softplus_backward", [](Case& c) {
  GradientPair(c, c.Pick(kRealTypes));
  c.Int(1).Int(20);
});
Conform kHardtanhGradient("aten::hardtanh_backward", [](Case& c) {
  GradientPair(c, c.Pick(kRealTypes));
  c.Float(-1).Float(1);
});
Conform kLeakyGradient("aten::leaky_relu_backward", [](Case& c) {
  GradientPair(c, c.Pick(kRealTypes));
  c.Float(0.1).Bool(false);
});
Conform kLogSigmoidGradient("aten::log_sigmoid_backward", [](Case& c) {
  DType dtype = c.Pick({DType::kFloat32, DType::kFloat64});
  Shape shape = c.RandomShape(0, 4);
  c.Tensor(dtype, shape).Tensor(dtype, shape).Tensor(dtype, shape);
});

void OptionalBound(Case& c, bool given) {
  if (!given) {
    c.None();
  } else if (c.Chance()) {
    c.Int(c.Random(0, 2));
  } else {
    c.Float(0.5);
  }
}
Conform kClamp("aten::clamp", [](Case& c) {
  c.Tensor(c.Pick(kNumberTypes), c.RandomShape(0, 4));
  bool low = c.Chance();
  OptionalBound(c, low);
  OptionalBound(c, !low || c.Chance());
});
Conform kClampTensors("aten::clamp.Tensor", [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  c.Tensor(c.Pick(kNumberTypes), c.BroadcastOperand(shape));
  bool low = c.Chance();
  for (bool given : {low, !low || c.Chance()}) {
    given ? c.Tensor(c.Pick(kNumberTypes), c.BroadcastOperand(shape)) : c.None();
  }
});

Conform kWhere("aten::where.self", [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  c.Tensor(DType::kBool, c.BroadcastOperand(shape));
  for (int i = 0; i < 2; ++i) {
    c.Chance(0.15) ? c.RandomNumber() : c.Tensor(c.Pick(kAllTypes), c.BroadcastOperand(shape));
  }
});
Conform kMaskedFill("aten::masked_fill.Scalar", [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  c.Tensor(c.Pick(kRealTypes), c.BroadcastOperand(shape));
  c.Tensor(DType::kBool, c.BroadcastOperand(shape)).Float(0.5);
});
Conform kMaskedFillTensor("aten::masked_fill.Tensor", [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  DType dtype = c.Pick(kRealTypes);
  c.Tensor(dtype, c.BroadcastOperand(shape));
  c.Tensor(DType::kBool, c.BroadcastOperand(shape)).Tensor(dtype, {});
});
Conform kTernary({"aten::addcmul", "aten::addcdiv"}, [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  for (int i = 0; i < 3; ++i) c.Tensor(c.Pick(kRealTypes), c.BroadcastOperand(shape));
});
Conform kLerp("aten::lerp.Tensor", [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  DType dtype = c.Pick(kRealTypes);
  for (int i = 0; i < 3; ++i) c.Tensor(dtype, c.BroadcastOperand(shape));
});
Conform kLerpScalar("aten::lerp.Scalar", [](Case& c) {
  DType dtype = c.Pick(kRealTypes);
  Shape shape = c.RandomShape(0, 4);
  c.Tensor(dtype, c.BroadcastOperand(shape)).Tensor(dtype, c.BroadcastOperand(shape)).Float(0.5);
});
Conform kComplex({"aten::polar", "aten::complex"}, [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  DType dtype = c.Pick({DType::kFloat32, DType::kFloat64});
  c.Tensor(dtype, c.BroadcastOperand(shape)).Tensor(dtype, c.BroadcastOperand(shape));
});
Conform kConj("aten::_conj_physical", [](Case& c) {
  c.Tensor(c.Pick({DType::kComplex64, DType::kComplex128, DType::kFloat32}), c.RandomShape(0, 4));
});

void Format(Case& c) {
  switch (c.Random(0, 2)) {
    case 0:
      c.None();
      break;
    case 1:
      c.Arg(MemoryFormat::kPreserve);
      break;
    default:
      c.Arg(MemoryFormat::kContiguous);
  }
}
Conform kClone("aten::clone", [](Case& c) {
  Unary(c, kAllTypes);
  Format(c);
});
Conform kToCopy("aten::_to_copy", [](Case& c) {
  Unary(c, kAllTypes);
  if (c.Chance(0.2)) {
    c.Arg(c.Pick({DType::kFloat8E4M3, DType::kFloat8E5M2}));
  } else {
    c.Chance() ? c.Arg(c.Pick(kRealTypes)) : c.None();
  }
  c.None();
  c.Chance(0.2) ? c.Arg(Device{}) : c.None();
  c.None().Bool(false);
  Format(c);
});
Conform kCopy("aten::copy", [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  c.Tensor(c.Pick(kAllTypes), shape);
  c.Tensor(c.Pick(kNonComplexTypes), c.BroadcastOperand(shape));
});
Conform kFill("aten::fill.Scalar", [](Case& c) {
  Unary(c, kAllTypes);
  c.RandomNumber();
});
Conform kFillTensor("aten::fill.Tensor", [](Case& c) {
  Unary(c, kRealTypes);
  c.Tensor(DType::kFloat32, {});
});
Conform kZero("aten::zero", [](Case& c) { Unary(c, kAllTypes); });
Conform kAssert("aten::_assert_async",
                [](Case& c) { c.Tensor(DType::kBool, {}, {.fill = Fill::kSame}); });
Conform kAssertMessage("aten::_assert_async.msg", [](Case& c) {
  c.Tensor(DType::kBool, {}, {.fill = Fill::kSame}).Arg(std::string("positions fit"));
});

}  // namespace
}  // namespace gt::conformance::elementwise_test
