#include "gt/ir/type.h"

#include <gtest/gtest.h>

#include "gt/ir/shape_env.h"

namespace gt::type_test {
namespace {

TEST(TypeTest, DTypeNamesReadBack) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
  }
  EXPECT_EQ(DTypeName(DType::kBFloat16), "bf16");
  EXPECT_FALSE(ParseDType("float"));
  EXPECT_FALSE(ParseDType(""));
}

TEST(TypeTest, EachDTypeIsOfOneKind) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const int kinds = IsFloating(dtype) + IsComplex(dtype) + IsIntegral(dtype) +
                      (dtype == DType::kBool) + (dtype == DType::kUndefined);
    EXPECT_EQ(kinds, 1) << DTypeName(dtype);
    EXPECT_EQ(ItemSize(dtype) > 0, dtype != DType::kUndefined) << DTypeName(dtype);
    EXPECT_FALSE(IsComplex(RealOf(dtype)));
  }
  EXPECT_EQ(RealOf(DType::kComplex64), DType::kFloat32);
  EXPECT_EQ(ComplexOf(DType::kFloat64), DType::kComplex128);
  EXPECT_EQ(ItemSize(DType::kComplex64), 2 * ItemSize(DType::kFloat32));
}

TEST(TypeTest, DeviceNamesReadBack) {
  for (const char* name : {"cpu", "cuda", "cuda:0", "cuda:17", "meta", "cpu:0"}) {
    ASSERT_TRUE(ParseDevice(name)) << name;
    EXPECT_EQ(DeviceName(*ParseDevice(name)), name);
  }
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1000", "cuda:1 ", ":1"}) {
    EXPECT_FALSE(ParseDevice(name)) << name;
  }
}

TEST(TypeTest, ContiguousStrides) {
  ShapeEnv env;
  const Dim s = Dim::Symbol(env.AddInputSymbol(4));  // at least 2
  const Dim u = Dim::Symbol(env.AddDataSymbol(4));   // may be 0
  EXPECT_EQ(ContiguousStrides({}, env), Shape{});
  EXPECT_EQ(ContiguousStrides({5}, env), Shape{1});
  EXPECT_EQ(ContiguousStrides({2, 3, 4}, env), (Shape{12, 4, 1}));
  // As libtorch: a size of zero counts as one.
  EXPECT_EQ(ContiguousStrides({2, 0, 4}, env), (Shape{4, 4, 1}));
  EXPECT_EQ(ContiguousStrides({2, s, 4}, env), (Shape{s * Dim(4), 4, 1}));
  EXPECT_EQ(ContiguousStrides({2, u, 4}, env), (Shape{Max(u, 1) * Dim(4), 4, 1}));
  EXPECT_EQ(ContiguousStrides({u, 4}, env), (Shape{4, 1}));
}

TEST(TypeTest, TensorTypes) {
  ShapeEnv env;
  const Dim s = Dim::Symbol(env.AddInputSymbol(4));
  const TensorType type = ContiguousType(DType::kBFloat16, {}, {2, s, 4}, env);
  EXPECT_EQ(type.rank(), 3);
  EXPECT_EQ(type.numel(), s * Dim(8));
  EXPECT_EQ(type.bytes(), s * Dim(16));
  EXPECT_TRUE(type.Mentions(0));
  EXPECT_FALSE(type.Mentions(1));
  const TensorType only_stride{DType::kFloat32, {}, {2, 2}, {s, 1}};
  EXPECT_TRUE(only_stride.Mentions(0));
  EXPECT_EQ(ContiguousType(DType::kFloat32, {}, {}, env).numel(), Dim(1));
  TensorType other = type;
  other.device.kind = DeviceKind::kCuda;
  EXPECT_NE(other, type);
}

}  // namespace
}  // namespace gt::type_test
