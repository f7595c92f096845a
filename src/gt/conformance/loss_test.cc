// Cases of ops/loss.cc.
#include "gt/conformance/harness.h"

namespace gt::conformance::loss_test {
namespace {

constexpr DType kLossTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16};

int64_t Reduction(Case& c) { return c.Random(0, 2); }  // none, mean, sum

struct Classified {
  Shape input, target;
  Dim classes;
};
Classified RandomClassified(Case& c, int64_t least) {
  Classified shape;
  shape.classes = c.Extent(1, 5);
  if (c.Chance(0.8)) {
    Dim batch = c.Extent(least, 5);
    shape.input = {batch, shape.classes};
    shape.target = {c.MustEqual(batch)};
  } else {
    shape.input = {shape.classes};
  }
  return shape;
}
TensorOptions Classes(const Classified& shape) {
  return {.fill = Fill::kIndex, .bound = shape.classes};
}

Conform kNllLoss("aten::nll_loss_forward", [](Case& c) {
  Classified shape = RandomClassified(c, 0);
  DType dtype = c.Pick(kLossTypes);
  c.Tensor(dtype, shape.input).Tensor(DType::kInt64, shape.target, Classes(shape));
  c.Chance(0.3) ? c.Tensor(dtype, {shape.classes}) : c.None();
  c.Int(Reduction(c)).Int(-100);
});
Conform kNllLossBackward("aten::nll_loss_backward", [](Case& c) {
  Classified shape = RandomClassified(c, 1);
  DType dtype = c.Pick(kLossTypes);
  int64_t reduction = Reduction(c);
  c.Tensor(dtype, reduction == 0 ? shape.target : Shape{});
  c.Tensor(dtype, shape.input).Tensor(DType::kInt64, shape.target, Classes(shape)).None();
  c.Int(reduction).Int(-100).Tensor(dtype, {});
});
Conform kNllLoss2d("aten::nll_loss2d_forward", [](Case& c) {
  Dim batch = c.Extent(1, 4), classes = c.Extent(1, 5), height = c.Extent(1, 4),
      width = c.Extent(1, 4);
  DType dtype = c.Pick(kLossTypes);
  c.Tensor(dtype, {batch, classes, height, width});
  c.Tensor(DType::kInt64, c.MustEqual(Shape{batch, height, width}),
           {.fill = Fill::kIndex, .bound = classes});
  c.None().Int(Reduction(c)).Int(-100);
});
Conform kNllLoss2dBackward("aten::nll_loss2d_backward", [](Case& c) {
  Dim batch = c.Extent(1, 4), classes = c.Extent(1, 5), height = c.Extent(1, 4),
      width = c.Extent(1, 4);
  DType dtype = c.Pick(kLossTypes);
  int64_t reduction = Reduction(c);
  Shape target = {batch, height, width};
  c.Tensor(dtype, reduction == 0 ? target : Shape{}).Tensor(dtype, {batch, classes, height, width});
  c.Tensor(DType::kInt64, target, {.fill = Fill::kIndex, .bound = classes});
  c.None().Int(reduction).Int(-100).Tensor(dtype, {});
});

Conform kCrossEntropyBackward("gt::cross_entropy_backward", [](Case& c) {
  const Dim tokens = c.Extent(1, 5), classes = c.Extent(1, 6);
  const DType dtype = c.Pick(kRealTypes);
  const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  c.Tensor(wide, {c.MustEqual(tokens)}).Tensor(wide, {c.MustEqual(tokens)});
  c.Tensor(dtype, {tokens, classes});
  c.Tensor(DType::kInt64, {c.MustEqual(tokens)}, {.fill = Fill::kIndex, .bound = classes});
  c.Tensor(wide, {c.MustEqual(tokens)}).Int(-100);
});

Conform kElementwise({"aten::mse_loss", "aten::smooth_l1_loss"}, [](Case& c) {
  Shape sizes = c.RandomShape(0, 4);
  DType dtype = c.Pick(kLossTypes);
  c.Tensor(dtype, c.BroadcastOperand(sizes)).Tensor(dtype, c.BroadcastOperand(sizes));
  c.Int(Reduction(c));
});
void Backward(Case& c) {
  Shape sizes = c.RandomShape(0, 4);
  DType dtype = c.Pick(kLossTypes);
  int64_t reduction = Reduction(c);
  c.Tensor(dtype, reduction == 0 ? sizes : Shape{}).Tensor(dtype, sizes).Tensor(dtype, sizes);
  c.Int(reduction);
}
Conform kMseBackward("aten::mse_loss_backward", Backward);
Conform kSmoothBackward("aten::smooth_l1_loss_backward", [](Case& c) {
  Backward(c);
  c.Float(1.0);
});
Conform kBce("aten::binary_cross_entropy_with_logits", [](Case& c) {
  Shape sizes = c.RandomShape(0, 4);
  DType dtype = c.Pick(kLossTypes);
  c.Tensor(dtype, sizes).Tensor(dtype, sizes, {.fill = Fill::kUnit});
  c.Chance(0.3) ? c.Tensor(dtype, c.BroadcastOperand(sizes)) : c.None();
  c.Chance(0.3) ? c.Tensor(dtype, c.BroadcastOperand(sizes)) : c.None();
  c.Int(Reduction(c));
});

}  // namespace
}  // namespace gt::conformance::loss_test
