// Cases of ops/factories.cc and ops/random.cc.
#include <numeric>

#include "gt/conformance/harness.h"

namespace gt::conformance::factories_test {
namespace {

constexpr DType kCountTypes[] = {DType::kInt64, DType::kFloat32, DType::kInt32};

// dtype, layout, device, pin_memory
template <typename Types>
Case& Options(Case& c, const Types& types) {
  c.Chance() ? c.Arg(c.Pick(types)) : c.None();
  c.Chance(0.2) ? c.Arg(Layout::kStrided) : c.None();
  c.Chance(0.2) ? c.Arg(Device{}) : c.None();
  return c.None();
}
Case& Format(Case& c) {
  if (c.Chance(0.3)) return c.None();
  return c.Arg(c.Pick({MemoryFormat::kPreserve, MemoryFormat::kContiguous}));
}

Conform kSizes({"aten::zeros", "aten::ones", "aten::empty.memory_format"},
               [](Case& c) { Options(c.Ints(c.RandomShape(0, 4)), kAllTypes); });
Conform kFull("aten::full",
              [](Case& c) { Options(c.Ints(c.RandomShape(0, 4)).RandomNumber(), kRealTypes); });
Conform kEmptyStrided("aten::empty_strided", [](Case& c) {
  Shape shape = c.RandomShape(0, 4), strides;
  for (size_t i = 0; i < shape.size(); ++i) strides.push_back(c.Extent());
  Options(c.Ints(shape).Ints(strides), kAllTypes);
});
Conform kEmptyPermuted("aten::empty_permuted", [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  Shape order;
  for (size_t i = 0; i < shape.size(); ++i) {
    order.insert(order.begin() + c.Random(0, static_cast<int64_t>(i)),
                 Dim(static_cast<int64_t>(i)));
  }
  Options(c.Ints(shape).Ints(order), kAllTypes);
});
Conform kScalarTensor("aten::scalar_tensor", [](Case& c) { Options(c.RandomNumber(), kAllTypes); });
Conform kArange("aten::arange", [](Case& c) {
  c.Chance(0.7) ? c.Int(c.Extent()) : c.Float(static_cast<double>(c.Random(0, 20)) * 0.3);
  Options(c, kNumberTypes);
});
Conform kArangeStart("aten::arange.start", [](Case& c) {
  if (c.Chance(0.7)) {
    Dim start = c.Extent();
    c.Int(start).Int(start + c.Extent());
  } else {
    c.Float(-0.7).Float(static_cast<double>(c.Random(0, 20)) * 0.3);
  }
  Options(c, kNumberTypes);
});
Conform kArangeStep("aten::arange.start_step", [](Case& c) {
  if (c.Chance(0.7)) {
    Dim start = c.Extent(), length = c.Extent();
    int64_t step = c.Random(1, 3);
    bool up = c.Chance(0.7);
    c.Int(start).Int(up ? start + length : start - length).Int(up ? step : -step);
  } else {
    c.Float(-0.7).Float(static_cast<double>(c.Random(0, 20)) * 0.3).Float(0.4);
  }
  // Asked for integers with a step below 1, libtorch divides by zero and the process dies.
  Options(c, kRealTypes);
});
Conform kLinspace("aten::linspace",
                  [](Case& c) { Options(c.Float(0).Float(1).Int(c.Extent()), kRealTypes); });
Conform kEye("aten::eye", [](Case& c) { Options(c.Int(c.Extent()), kRealTypes); });
Conform kEyeRectangle("aten::eye.m",
                      [](Case& c) { Options(c.Int(c.Extent()).Int(c.Extent()), kRealTypes); });

Conform kLike({"aten::zeros_like", "aten::ones_like", "aten::empty_like"}, [](Case& c) {
  c.Tensor(c.Pick(kAllTypes), c.RandomShape(0, 4));
  Format(Options(c, kAllTypes));
});
Conform kFullLike("aten::full_like", [](Case& c) {
  c.Tensor(c.Pick(kRealTypes), c.RandomShape(0, 4)).Float(0.5);
  Format(Options(c, kRealTypes));
});
Conform kNew({"aten::new_zeros", "aten::new_ones", "aten::new_empty"}, [](Case& c) {
  c.Tensor(c.Pick(kAllTypes), c.RandomShape(0, 3)).Ints(c.RandomShape(0, 4));
  Options(c, kAllTypes);
});
Conform kNewFull("aten::new_full", [](Case& c) {
  c.Tensor(c.Pick(kRealTypes), c.RandomShape(0, 3)).Ints(c.RandomShape(0, 4)).RandomNumber();
  Options(c, kRealTypes);
});
Conform kNewEmptyStrided("aten::new_empty_strided", [](Case& c) {
  Shape shape = c.RandomShape(0, 4), strides;
  for (size_t i = 0; i < shape.size(); ++i) strides.push_back(c.Extent());
  c.Tensor(c.Pick(kAllTypes), c.RandomShape(0, 3)).Ints(shape).Ints(strides);
  Options(c, kAllTypes);
});
Conform kTriangles({"aten::tril", "aten::triu"}, [](Case& c) {
  c.Tensor(c.Pick(kAllTypes), c.RandomShape(2, 4)).Int(c.Random(-2, 2));
});
Conform kLift("aten::lift_fresh_copy",
              [](Case& c) { c.Tensor(c.Pick(kAllTypes), c.RandomShape(0, 4)); });

Conform kRand({"aten::rand", "aten::randn"},
              [](Case& c) { Options(c.Ints(c.RandomShape(0, 4)), kRealTypes); });
Conform kRandint("aten::randint", [](Case& c) {
  c.Int(c.Extent(1, 5)).Ints(c.RandomShape(0, 4));
  if (c.Chance()) Options(c, kCountTypes);
});
Conform kRandintLow("aten::randint.low", [](Case& c) {
  c.Int(-2).Int(c.Extent(0, 5)).Ints(c.RandomShape(0, 4));
  if (c.Chance()) Options(c, kCountTypes);
});
Conform kRandperm("aten::randperm", [](Case& c) {
  c.Int(c.Extent());
  if (c.Chance()) Options(c, kCountTypes);
});
Conform kNormalSizes("aten::normal.float_float", [](Case& c) {
  c.Float(0).Float(1).Ints(c.RandomShape(0, 4)).None();
  Options(c, kRealTypes);
});
Conform kRandLike({"aten::rand_like", "aten::randn_like"}, [](Case& c) {
  c.Tensor(c.Pick(kRealTypes), c.RandomShape(0, 4));
  Format(Options(c, kRealTypes));
});
Conform kRandintLike("aten::randint_like", [](Case& c) {
  c.Tensor(c.Pick(kRealTypes), c.RandomShape(0, 4)).Int(7);
  Format(Options(c, kCountTypes));
});
Conform kRandintLikeLow("aten::randint_like.low_dtype", [](Case& c) {
  c.Tensor(c.Pick(kRealTypes), c.RandomShape(0, 4)).Int(-3).Int(7);
  Format(Options(c, kCountTypes));
});
Conform kInPlaceForms({"aten::normal_functional", "aten::uniform", "aten::exponential",
                       "aten::random"},
                      [](Case& c) { c.Tensor(c.Pick(kRealTypes), c.RandomShape(0, 4)); });
Conform kRandomFrom("aten::random.from", [](Case& c) {
  c.Tensor(c.Pick(kRealTypes), c.RandomShape(0, 4)).Int(0);
  c.Chance() ? c.Int(5) : c.None();
});
Conform kBernoulli("aten::bernoulli", [](Case& c) {
  c.Tensor(c.Pick(kRealTypes), c.RandomShape(0, 4), {.fill = Fill::kUnit});
});
Conform kBernoulliP("aten::bernoulli.p",
                    [](Case& c) { c.Tensor(c.Pick(kRealTypes), c.RandomShape(0, 4)).Float(0.5); });
Conform kMultinomial(
    "aten::multinomial",
    [](Case& c) {
      Shape shape;
      if (c.Chance()) shape.push_back(c.Extent());
      shape.push_back(c.Extent(1, 5));
      c.Tensor(c.Pick({DType::kFloat32, DType::kFloat64}), shape, {.fill = Fill::kUnit});
      c.Int(c.Random(1, c.Drawn(shape.back()))).Bool(c.Chance());
    },
    {.data_variant = false});  // that enough categories exist is a question about the size
// Without elements the CPU kernel returns its input and a mask of the input's dtype; the rule says
// bool as on CUDA.
Conform kDropout("aten::native_dropout", [](Case& c) {
  Shape shape;
  for (int64_t rank = c.Random(0, 4); rank > 0; --rank) shape.push_back(c.Extent(1, 5));
  c.Tensor(c.Pick(kRealTypes), shape).Float(c.Pick({0.0, 0.3, 1.0}));
  c.Chance(0.8) ? c.Bool(c.Chance(0.7)) : c.None();
});
Conform kDropoutGradient("aten::native_dropout_backward", [](Case& c) {
  Shape shape = c.RandomShape(0, 4);
  c.Tensor(c.Pick(kRealTypes), shape).Tensor(DType::kBool, c.MustEqual(shape)).Float(1.5);
});

}  // namespace
}  // namespace gt::conformance::factories_test
