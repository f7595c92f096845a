// Cases of ops/reductions.cc.
#include "gt/conformance/harness.h"

namespace gt::conformance::reductions_test {
namespace {

template <typename Types>
Case& Self(Case& c, const Types& types, int64_t low = 0) {
  Shape shape;
  int64_t rank = c.Random(0, 4);
  for (int64_t i = 0; i < rank; ++i) shape.push_back(c.Extent(low, 5));
  return c.Tensor(c.Pick(types), shape);
}

// Norms may convert to a wider dtype only.
constexpr DType kNarrowTypes[] = {DType::kFloat32, DType::kBFloat16};

Case& OneDim(Case& c) { return c.Int(c.RandomDim(c.operand_type(0).rank())); }
Case& Dims(Case& c, int64_t min_count = 0) {
  return c.Ints(c.RandomDims(c.operand_type(0).rank(), min_count));
}
Case& OptionalDims(Case& c) { return c.Chance(0.2) ? c.None() : Dims(c); }
Case& SumDType(Case& c) {
  return c.Chance(0.3) ? c.Arg(c.Pick({DType::kFloat32, DType::kFloat64, DType::kInt64}))
                       : c.None();
}
Case& FloatDType(Case& c) {
  return c.Chance(0.3) ? c.Arg(c.Pick({DType::kFloat32, DType::kFloat64})) : c.None();
}

Conform kSumAll({"aten::sum", "aten::prod"}, [](Case& c) { SumDType(Self(c, kNonComplexTypes)); });
Conform kNanSum("aten::nansum", [](Case& c) {
  Self(c, kRealTypes);
  FloatDType(OptionalDims(c).Bool(c.Chance()));
});
Conform kSum("aten::sum.dim_IntList", [](Case& c) {
  Self(c, kNonComplexTypes);
  SumDType(OptionalDims(c).Bool(c.Chance()));
});
Conform kSumComplex("aten::sum.dim_IntList", [](Case& c) {
  Self(c, kFloatTypes);
  OptionalDims(c).Bool(c.Chance());
});
Conform kMeanAll("aten::mean", [](Case& c) { FloatDType(Self(c, kRealTypes)); });
Conform kMean("aten::mean.dim", [](Case& c) {
  Self(c, kFloatTypes);
  OptionalDims(c).Bool(c.Chance());
});
Conform kMeanConverted("aten::mean.dim", [](Case& c) {
  Self(c, kNonComplexTypes);
  OptionalDims(c).Bool(c.Chance()).Arg(DType::kFloat32);
});
Conform kProd("aten::prod.dim_int", [](Case& c) {
  Self(c, kNonComplexTypes);
  SumDType(OneDim(c).Bool(c.Chance()));
});
Conform kCountAll("aten::count_nonzero", [](Case& c) {
  Self(c, kAllTypes);
  c.Chance() ? OneDim(c) : c.None();
});
Conform kCount("aten::count_nonzero.dim_IntList", [](Case& c) {
  Self(c, kAllTypes);
  Dims(c);
});

// Extrema of nothing do not exist; both sides must say so, hence extents of zero are allowed here
// as everywhere.
Conform kExtrema({"aten::amax", "aten::amin"}, [](Case& c) {
  Self(c, kNonComplexTypes);
  Dims(c).Bool(c.Chance());
});
Conform kExtremaAll({"aten::max", "aten::min"}, [](Case& c) { Self(c, kNonComplexTypes); });
Conform kExtremaDim({"aten::max.dim", "aten::min.dim"}, [](Case& c) {
  Self(c, kNonComplexTypes);
  OneDim(c).Bool(c.Chance());
});
Conform kArgExtrema({"aten::argmax", "aten::argmin"}, [](Case& c) {
  Self(c, kNumberTypes);
  (c.Chance(0.3) ? c.None() : OneDim(c)).Bool(c.Chance());
});
Conform kTruthAll({"aten::any", "aten::all"}, [](Case& c) { Self(c, kAllTypes); });
Conform kTruthDim({"aten::any.dim", "aten::all.dim"}, [](Case& c) {
  Self(c, kAllTypes);
  OneDim(c).Bool(c.Chance());
});
Conform kTruthDims({"aten::any.dims", "aten::all.dims"}, [](Case& c) {
  Self(c, kAllTypes);
  OptionalDims(c).Bool(c.Chance());
});

Conform kLogSumExp("aten::logsumexp", [](Case& c) {
  Self(c, kNonComplexTypes);
  Dims(c, 1).Bool(c.Chance());
});
// Operators of our own (kernels/row_operators.h).
Conform kRowLogSumExp("gt::log_sum_exp",
                      [](Case& c) { c.Tensor(c.Pick(kRealTypes), c.RandomShape(1, 4)); });
Conform kRowDots("gt::row_dots", [](Case& c) {
  const Shape shape = c.RandomShape(1, 4);
  auto operand = [&] {
    Shape sizes = c.BroadcastOperand(shape);
    if (sizes.empty()) sizes.push_back(shape.back());
    sizes.back() = shape.back();
    c.Tensor(c.Pick(kRealTypes), sizes);
  };
  operand();
  operand();
});
Conform kRowDotsAt("gt::row_dots_at", [](Case& c) {
  const Dim rows = c.Extent(1, 5), width = c.Extent(1, 6), tokens = c.Extent(1, 4),
            k = c.Extent(1, 3);
  c.Tensor(c.Pick(kRealTypes), {rows, width});
  c.Tensor(DType::kInt64, {tokens, k}, {.fill = Fill::kIndex, .bound = rows});
  c.Tensor(c.Pick(kRealTypes), {tokens, 1, c.MustEqual(width)});
});
Conform kVar({"aten::var.correction", "aten::std.correction"}, [](Case& c) {
  Self(c, kFloatTypes);
  OptionalDims(c).Int(c.Random(0, 1)).Bool(c.Chance());
});
Conform kVarMean("aten::var_mean.correction", [](Case& c) {
  Self(c, kRealTypes);
  OptionalDims(c).Int(c.Random(0, 1)).Bool(c.Chance());
});
Conform kVectorNorm("aten::linalg_vector_norm", [](Case& c) {
  Self(c, kFloatTypes);
  c.Float(c.Pick({1.0, 2.0, 3.0}));
  OptionalDims(c).Bool(c.Chance());
});
Conform kVectorNormConverted("aten::linalg_vector_norm", [](Case& c) {
  Self(c, kNarrowTypes);
  c.Float(2);
  OptionalDims(c).Bool(c.Chance()).Arg(c.Pick({DType::kFloat32, DType::kFloat64}));
});
Conform kNorm("aten::norm.ScalarOpt_dim", [](Case& c) {
  Self(c, kFloatTypes);
  c.Chance(0.2) ? c.None() : c.Float(2);
  Dims(c).Bool(c.Chance());
});
Conform kNormConverted("aten::norm.ScalarOpt_dim_dtype", [](Case& c) {
  Self(c, kNarrowTypes);
  c.Float(2);
  Dims(c).Bool(c.Chance()).Arg(c.Pick({DType::kFloat32, DType::kFloat64}));
});
Conform kNormAll("aten::norm.Scalar", [](Case& c) { Self(c, kFloatTypes).Float(2); });

Conform kScans({"aten::cumsum", "aten::cumprod"}, [](Case& c) {
  Self(c, kNonComplexTypes);
  SumDType(OneDim(c));
});
Conform kSoftmax({"aten::_softmax", "aten::_log_softmax"}, [](Case& c) {
  Self(c, kRealTypes);
  OneDim(c).Bool(false);
});
Conform kSoftmaxWidened({"aten::_softmax", "aten::_log_softmax"}, [](Case& c) {
  c.Tensor(Case::on_cuda() ? DType::kFloat16 : DType::kFloat32, c.RandomShape(0, 4));
  OneDim(c).Bool(Case::on_cuda());
});
Conform kSoftmaxGradient({"aten::_softmax_backward_data", "aten::_log_softmax_backward_data"},
                         [](Case& c) {
                           DType dtype = c.Pick(kRealTypes);
                           Shape shape = c.RandomShape(0, 4);
                           c.Tensor(dtype, shape).Tensor(dtype, c.MustEqual(shape));
                           OneDim(c).Arg(dtype);
                         });
// Choosing experts for a number of tokens that only data knows.
Conform kTopkOfExperts("aten::topk", [](Case& c) {
  Shape shape = c.RandomShape(0, 2);
  shape.push_back(8);
  c.Tensor(c.Pick(kRealTypes), shape).Int(c.Random(1, 8)).Int(-1);
});
Conform kTopk("aten::topk",
              [](Case& c) {
                Self(c, kNumberTypes);
                const TensorType& self = c.operand_type(0);
                Dim dim = c.RandomDim(self.rank());
                int64_t at = *dim.as_const();
                int64_t count = 1;
                if (self.rank() > 0) {
                  count = c.Drawn(self.sizes[static_cast<size_t>(at < 0 ? at + self.rank() : at)]);
                }
                c.Int(c.Random(0, count)).Int(dim).Bool(c.Chance()).Bool(c.Chance());
              },
              {.data_variant = false});  // that k elements exist is a question about the size
Conform kSort("aten::sort", [](Case& c) {
  Self(c, kNonComplexTypes);
  OneDim(c).Bool(c.Chance());
});
Conform kStableSort("aten::sort.stable", [](Case& c) {
  Self(c, kNonComplexTypes).Bool(true);
  OneDim(c).Bool(c.Chance());
});

}  // namespace
}  // namespace gt::conformance::reductions_test
