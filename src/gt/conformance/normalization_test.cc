// Cases of ops/normalization.cc.
#include <gtest/gtest.h>

#include "gt/conformance/harness.h"

namespace gt::conformance::normalization_test {
namespace {

struct Normalized {
  Shape sizes;
  Shape last;
};
Normalized RandomNormalized(Case& c, int64_t least = 0) {
  Normalized shape;
  int64_t outer = c.Random(0, 3), inner = c.Random(1, 2);
  for (int64_t i = 0; i < outer; ++i) shape.sizes.push_back(c.Extent(least, 5));
  for (int64_t i = 0; i < inner; ++i) shape.last.push_back(c.Extent(1, 5));
  shape.sizes.insert(shape.sizes.end(), shape.last.begin(), shape.last.end());
  return shape;
}
Shape StatisticsShape(const Normalized& shape) {
  Shape sizes = shape.sizes;
  for (size_t i = sizes.size() - shape.last.size(); i < sizes.size(); ++i) sizes[i] = 1;
  return sizes;
}
// Half-precision input may come with f32 weights.
DType WeightType(Case& c, DType input) {
  bool half = ItemSize(input) == 2;
  return half && c.Chance(0.4) ? DType::kFloat32 : input;
}

Conform kLayerNorm("aten::native_layer_norm", [](Case& c) {
  Normalized shape = RandomNormalized(c);
  DType dtype = c.Pick(kRealTypes), weight = WeightType(c, dtype);
  bool bias = c.Chance(0.7);
  c.Tensor(dtype, shape.sizes).Ints(c.MustEqual(shape.last));
  if (c.Chance(0.7)) {
    c.Tensor(weight, shape.last);
    bias ? c.Tensor(weight, shape.last) : c.None();
  } else {
    c.None().None();
  }
  c.Float(1e-5);
});
Conform kLayerNormBackward("aten::native_layer_norm_backward", [](Case& c) {
  Normalized shape = RandomNormalized(c);
  DType dtype = c.Pick({DType::kFloat32, DType::kFloat64});
  c.Tensor(dtype, shape.sizes).Tensor(dtype, shape.sizes).Ints(shape.last);
  c.Tensor(dtype, StatisticsShape(shape), {.layout = LayoutChoice::kContiguous});
  c.Tensor(dtype, StatisticsShape(shape), {.layout = LayoutChoice::kContiguous});
  c.Tensor(dtype, shape.last).Tensor(dtype, shape.last);
  c.Arg(std::vector<bool>{c.Chance(), c.Chance(), c.Chance()});
});
// The CPU has no kernel of its own but composes the same results.
Conform kRmsNorm("aten::_fused_rms_norm",
                 [](Case& c) {
                   Normalized shape = RandomNormalized(c, 1);
                   DType dtype = c.Pick(kRealTypes);
                   // The composition leaves contiguous tensors as they are, odd strides of size-one
                   // dimensions included.
                   const TensorOptions plain = {.layout = LayoutChoice::kContiguous};
                   c.Tensor(dtype, shape.sizes, plain).Ints(shape.last);
                   c.Chance() ? c.Tensor(dtype, shape.last, plain) : c.None();
                   c.Chance() ? c.Float(1e-5) : c.None();
                 },
                 {.data_variant = false});  // the composition reads its sizes

// Operators of our own (kernels/row_operators.h).
Shape RandomRows(Case& c, DType* dtype) {
  *dtype = c.Pick(kRealTypes);
  return c.RandomShape(1, 4);
}
Conform kRowNorm("gt::rms_norm", [](Case& c) {
  DType dtype;
  const Shape shape = RandomRows(c, &dtype);
  c.Tensor(dtype, shape).Tensor(dtype, {c.MustEqual(shape.back())}).Float(1e-5);
});
Conform kAddRowNorm("gt::add_rms_norm", [](Case& c) {
  DType dtype;
  const Shape shape = RandomRows(c, &dtype);
  c.Tensor(dtype, shape).Tensor(dtype, c.MustEqual(shape));
  c.Tensor(dtype, {c.MustEqual(shape.back())}).Float(1e-5);
});
Conform kRowNormBackward("gt::rms_norm_backward", [](Case& c) {
  DType dtype;
  const Shape shape = RandomRows(c, &dtype);
  Shape statistics = shape;
  statistics.back() = 1;
  c.Tensor(dtype, c.MustEqual(shape)).Tensor(dtype, shape);
  c.Tensor(dtype == DType::kFloat64 ? dtype : DType::kFloat32, statistics,
           {.layout = LayoutChoice::kContiguous});
  c.Tensor(dtype, {c.MustEqual(shape.back())});
  c.Chance() ? c.Tensor(dtype, c.MustEqual(shape)) : c.None();
});

Exempt kCuda({"aten::_fused_rms_norm_backward"},
             "libtorch has a CUDA kernel only; see the recorded answers in this file");

TensorType On(Device device, DType dtype, Shape sizes, Shape strides = {}) {
  if (strides.empty()) strides = ContiguousStrides(sizes, ShapeEnv());
  return {dtype, device, std::move(sizes), std::move(strides)};
}

// What the kernels of libtorch 2.11.0 return on an H200.
TEST(RecordedConformance, FusedRmsNorm) {
  const Device cuda{DeviceKind::kCuda, 0};
  ShapeEnv env;
  TensorType input = On(cuda, DType::kBFloat16, {2, 5, 8}, {8, 16, 1}),
             weight = On(cuda, DType::kBFloat16, {8});
  TensorType dense = On(cuda, DType::kBFloat16, {2, 5, 8}),
             rstd = On(cuda, DType::kFloat32, {2, 5, 1});
  {
    const TensorType* operands[] = {&input, &weight};
    Argument args[] = {OperandRef{0}, Shape{8}, OperandRef{1}, 1e-5};
    RuleContext ctx(*FindOperator("aten::_fused_rms_norm"), args, operands, env);
    ctx.op().rule(ctx);
    EXPECT_EQ(ctx.results(), (std::vector<TensorType>{dense, rstd}));
  }
  for (bool wanted : {true, false}) {
    const TensorType* operands[] = {&dense, &input, &rstd, &weight};
    Argument args[] = {OperandRef{0}, OperandRef{1}, Shape{8},
                       OperandRef{2}, OperandRef{3}, std::vector<bool>{true, wanted}};
    RuleContext ctx(*FindOperator("aten::_fused_rms_norm_backward"), args, operands, env);
    ctx.op().rule(ctx);
    EXPECT_EQ(ctx.results()[0], dense);
    EXPECT_EQ(ctx.results()[1].defined(), wanted);
    if (wanted) {
      EXPECT_EQ(ctx.results()[1], weight);
    }
  }
}

}  // namespace
}  // namespace gt::conformance::normalization_test
