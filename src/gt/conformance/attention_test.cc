// Cases of ops/attention.cc. The CPU's kernel is run; of the CUDA kernels libtorch's answers on an
// H200 are recorded here.
#include <gtest/gtest.h>

#include <algorithm>

#include "gt/conformance/harness.h"

namespace gt::conformance::attention_test {
namespace {

constexpr DType kAttentionTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16};

struct Extents {
  Dim batch, heads, queries, keys, width;
};
Extents RandomExtents(Case& c) {
  return {c.Extent(1, 3), c.Extent(1, 4), c.Extent(1, 5), c.Extent(1, 5), c.Extent(1, 8)};
}

// The kernel wants the width innermost.
void Heads(Case& c, DType dtype, const Shape& sizes) {
  bool length_major = c.Chance(0.6);
  Shape memory = sizes;
  if (length_major) std::swap(memory[1], memory[2]);
  // Sometimes one of three that were computed together.
  if (c.Chance(0.3)) memory[3] *= 3;
  TensorType type{dtype, {}, sizes, ContiguousStrides(memory, c.env())};
  if (length_major) std::swap(type.strides[1], type.strides[2]);
  c.Tensor(type, 0, Product(memory));
}

Conform kCpuFlash("aten::_scaled_dot_product_flash_attention_for_cpu", [](Case& c) {
  Extents e = RandomExtents(c);
  DType dtype = c.Pick(kAttentionTypes);
  Heads(c, dtype, {e.batch, e.heads, e.queries, e.width});
  Heads(c, dtype, {c.MustEqual(e.batch), e.heads, e.keys, e.width});
  Heads(c, dtype, {e.batch, e.heads, c.MustEqual(e.keys), c.MustEqual(e.width)});
  c.Float(0).Bool(c.Chance());
  c.Chance(0.2) ? c.Tensor(dtype, {e.queries, e.keys}, {.layout = LayoutChoice::kContiguous})
                : c.None();
  c.Chance() ? c.Float(0.5) : c.None();
});
Conform kCpuFlashBackward("aten::_scaled_dot_product_flash_attention_for_cpu_backward", [](Case&
                                                                                               c) {
  Extents e = RandomExtents(c);
  DType dtype = c.Pick(kAttentionTypes);
  Shape query = {e.batch, e.heads, e.queries, e.width}, key = {e.batch, e.heads, e.keys, e.width};
  Heads(c, dtype, query);
  Heads(c, dtype, query);
  Heads(c, dtype, key);
  Heads(c, dtype, key);
  Heads(c, dtype, query);
  Shape sums = ContiguousStrides({e.batch, e.queries, e.heads}, c.env());
  std::swap(sums[1], sums[2]);
  DType sum_type = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  c.Tensor({sum_type, {}, {e.batch, e.heads, e.queries}, sums}, 0, e.batch * e.heads * e.queries);
  c.Float(0).Bool(c.Chance());
});

Exempt kCuda({"aten::_scaled_dot_product_flash_attention",
              "aten::_scaled_dot_product_flash_attention_backward",
              "aten::_scaled_dot_product_efficient_attention",
              "aten::_scaled_dot_product_efficient_attention_backward",
              "aten::_scaled_dot_product_cudnn_attention",
              "aten::_scaled_dot_product_cudnn_attention_backward"},
             "libtorch has CUDA kernels only; see the recorded answers in this file");
Exempt kFlex({"gt::flex_attention", "gt::flex_attention_backward"},
             "operators of our own; see ops/attention_test.cc");

const Device kGpu{DeviceKind::kCuda, 0};
constexpr DType kBf16 = DType::kBFloat16;

TensorType Gpu(DType dtype, Shape sizes, Shape strides) {
  return {dtype, kGpu, std::move(sizes), std::move(strides)};
}
TensorType Undefined() {
  TensorType type;
  type.dtype = DType::kUndefined;
  return type;
}

struct Answer {
  std::vector<TensorType> results;
  std::vector<Dim> integers;
};
Answer Infer(const char* op, std::vector<TensorType> operands, std::vector<Argument> args) {
  ShapeEnv env;
  std::vector<const TensorType*> pointers;
  for (const TensorType& operand : operands) pointers.push_back(&operand);
  RuleContext ctx(*FindOperator(op), args, pointers, env);
  ctx.op().rule(ctx);
  return {ctx.results(), ctx.integers()};
}

// Query, key and value of one recorded call, and the strides of what came back.
struct Recorded {
  TensorType query, key, value;
  Shape flash, efficient, cudnn;  // of the output
  Shape flash_query, flash_key;   // of gradients; values are as keys
  Shape efficient_query, efficient_key, efficient_value;
};

std::vector<Recorded> RecordedCalls() {
  const Shape q = {2, 4, 40, 64}, k = {2, 4, 48, 64};
  const Shape q_plain = {10240, 2560, 64, 1}, q_long = {10240, 64, 256, 1};
  const Shape k_plain = {12288, 3072, 64, 1}, k_long = {12288, 64, 256, 1};
  TensorType one = Gpu(kBf16, {1, 1, 8, 8}, {64, 8, 8, 1});
  return {
      {Gpu(kBf16, q, q_plain), Gpu(kBf16, k, k_plain), Gpu(kBf16, k, k_plain), q_plain, q_long,
       q_plain, q_plain, k_plain, q_long, k_long, k_long},
      {Gpu(kBf16, q, q_long), Gpu(kBf16, k, k_long), Gpu(kBf16, k, k_long), q_long, q_long, q_long,
       q_long, k_long, q_long, k_long, k_long},
      // A query cut out of a fused projection is not dense; what is made like it is.
      {Gpu(kBf16, q, {30720, 64, 768, 1}), Gpu(kBf16, k, k_long), Gpu(kBf16, k, k_long), q_long,
       q_long, q_long, q_long, k_long, q_long, k_long, k_long},
      {Gpu(kBf16, {1, 1, 8, 8}, {64, 64, 8, 1}),
       Gpu(kBf16, {1, 1, 8, 8}, {64, 64, 8, 1}),
       Gpu(kBf16, {1, 1, 8, 8}, {64, 64, 8, 1}),
       {64, 64, 8, 1},
       {64, 8, 8, 1},
       {64, 64, 8, 1},
       {64, 64, 8, 1},
       {64, 64, 8, 1},
       {64, 8, 8, 1},
       {64, 8, 8, 1},
       {64, 8, 8, 1}},
      {Gpu(kBf16, {1, 1, 8, 8}, {192, 8, 24, 1}), one, one, one.strides, one.strides, one.strides,
       one.strides, one.strides, one.strides, one.strides, one.strides},
  };
}

TEST(RecordedConformance, FlashAttention) {
  for (const Recorded& call : RecordedCalls()) {
    const auto& [query, key, value, out, _, __, grad_query, grad_key, ___, ____, _____] = call;
    const Shape& q = query.sizes;
    Answer forward = Infer("aten::_scaled_dot_product_flash_attention", {query, key, value},
                           {OperandRef{0}, OperandRef{1}, OperandRef{2}, 0.0, true, false, {}});
    TensorType sums = Gpu(DType::kFloat32, {q[0], q[1], q[2]}, {q[1] * q[2], q[2], 1});
    EXPECT_EQ(forward.results,
              (std::vector<TensorType>{Gpu(kBf16, q, out), sums, Undefined(), Undefined(),
                                       Gpu(DType::kUInt64, {2}, {1}), Gpu(DType::kUInt64, {}, {}),
                                       Gpu(kBf16, {0}, {1})}));
    EXPECT_EQ(forward.integers, (std::vector<Dim>{q[2], key.sizes[2]}));
    const std::vector<TensorType>& r = forward.results;
    Answer backward = Infer("aten::_scaled_dot_product_flash_attention_backward",
                            {r[0], query, key, value, r[0], r[1], r[4], r[5]},
                            {OperandRef{0},
                             OperandRef{1},
                             OperandRef{2},
                             OperandRef{3},
                             OperandRef{4},
                             OperandRef{5},
                             {},
                             {},
                             forward.integers[0],
                             forward.integers[1],
                             0.0,
                             true,
                             OperandRef{6},
                             OperandRef{7},
                             {}});
    EXPECT_EQ(backward.results,
              (std::vector<TensorType>{Gpu(kBf16, q, grad_query), Gpu(kBf16, key.sizes, grad_key),
                                       Gpu(kBf16, key.sizes, grad_key)}));
  }
}

std::vector<TensorType> EfficientForward(const TensorType& query, const TensorType& key,
                                         const TensorType& value, bool sums) {
  return Infer("aten::_scaled_dot_product_efficient_attention", {query, key, value},
               {OperandRef{0}, OperandRef{1}, OperandRef{2}, {}, sums, 0.0, true, {}})
      .results;
}
std::vector<TensorType> EfficientBackward(const TensorType& query, const TensorType& key,
                                          const TensorType& value,
                                          const std::vector<TensorType>& r) {
  return Infer("aten::_scaled_dot_product_efficient_attention_backward",
               {r[0], query, key, value, r[0], r[1], r[2], r[3]},
               {OperandRef{0},
                OperandRef{1},
                OperandRef{2},
                OperandRef{3},
                {},
                OperandRef{4},
                OperandRef{5},
                OperandRef{6},
                OperandRef{7},
                0.0,
                std::vector<bool>{true, true, true, false},
                true,
                {}})
      .results;
}

TEST(RecordedConformance, EfficientAttention) {
  const TensorType seed{DType::kInt64, Device{}, {}, {}};
  for (const Recorded& call : RecordedCalls()) {
    const Shape& q = call.query.sizes;
    std::vector<TensorType> r = EfficientForward(call.query, call.key, call.value, true);
    // Lengths are rounded up to 32: 40 to 64, 8 to 32.
    Dim padded = q[2].Is(40) ? 64 : 32;
    TensorType sums = Gpu(DType::kFloat32, {q[0], q[1], padded}, {q[1] * padded, padded, 1});
    EXPECT_EQ(r, (std::vector<TensorType>{Gpu(kBf16, q, call.efficient), sums, seed, seed}));
    std::vector<TensorType> none = EfficientForward(call.query, call.key, call.value, false);
    EXPECT_EQ(none[1], Gpu(DType::kFloat32, {q[0], q[1], 0}, {q[1], 1, 1}));
    EXPECT_EQ(
        EfficientBackward(call.query, call.key, call.value, r),
        (std::vector<TensorType>{Gpu(kBf16, q, call.efficient_query),
                                 Gpu(kBf16, call.key.sizes, call.efficient_key),
                                 Gpu(kBf16, call.value.sizes, call.efficient_value), Undefined()}));
  }
}

// The gradient of a bias is dense, with rows padded to 16 elements.
TEST(RecordedConformance, EfficientAttentionBias) {
  Recorded call = RecordedCalls()[0];
  // Expanded over heads and cut out of wider rows.
  TensorType bias = Gpu(kBf16, {2, 4, 40, 48}, {2240, 0, 56, 1});
  std::vector<TensorType> r = EfficientForward(call.query, call.key, call.value, true);
  std::vector<TensorType> grads =
      Infer("aten::_scaled_dot_product_efficient_attention_backward",
            {r[0], call.query, call.key, call.value, bias, r[0], r[1], r[2], r[3]},
            {OperandRef{0},
             OperandRef{1},
             OperandRef{2},
             OperandRef{3},
             OperandRef{4},
             OperandRef{5},
             OperandRef{6},
             OperandRef{7},
             OperandRef{8},
             0.0,
             std::vector<bool>{true, true, true, true},
             false,
             {}})
          .results;
  EXPECT_EQ(grads[3], Gpu(kBf16, bias.sizes, {7680, 1920, 48, 1}));
}

std::vector<TensorType> CudnnForward(const TensorType& query, const TensorType& key,
                                     const TensorType& value, bool sums) {
  return Infer("aten::_scaled_dot_product_cudnn_attention", {query, key, value},
               {OperandRef{0}, OperandRef{1}, OperandRef{2}, {}, sums, 0.0, true, false, {}})
      .results;
}

TEST(RecordedConformance, CudnnAttention) {
  const TensorType seed = Gpu(DType::kInt64, {}, {});
  for (const Recorded& call : RecordedCalls()) {
    const Shape& q = call.query.sizes;
    TensorType sums = Gpu(DType::kFloat32, {q[0], q[1], q[2], 1}, {q[1] * q[2], q[2], 1, 1});
    for (bool wanted : {true, false}) {
      EXPECT_EQ(CudnnForward(call.query, call.key, call.value, wanted),
                (std::vector<TensorType>{Gpu(kBf16, q, call.cudnn), wanted ? sums : Undefined(),
                                         Undefined(), Undefined(), seed, seed, Undefined()}));
    }
  }
}

// Values narrower than queries, as multi-head latent attention has them.
TEST(RecordedConformance, NarrowValues) {
  const Shape wide = {2, 4, 130, 192}, narrow = {2, 4, 130, 128};
  const Shape wide_plain = {99840, 24960, 192, 1}, wide_long = {99840, 192, 768, 1};
  const Shape narrow_plain = {66560, 16640, 128, 1}, narrow_long = {66560, 128, 512, 1};
  TensorType fused = Gpu(kBf16, wide, {299520, 192, 2304, 1});
  TensorType key = Gpu(kBf16, wide, wide_long), value = Gpu(kBf16, narrow, narrow_long);
  EXPECT_EQ(CudnnForward(fused, key, value, true)[0].strides, narrow_long);
  TensorType plain = Gpu(kBf16, wide, wide_plain), plain_value = Gpu(kBf16, narrow, narrow_plain);
  EXPECT_EQ(CudnnForward(plain, plain, plain_value, true)[0].strides, narrow_plain);
  std::vector<TensorType> r = EfficientForward(fused, key, value, true);
  EXPECT_EQ(r[0], Gpu(kBf16, narrow, narrow_long));
  EXPECT_EQ(r[1].sizes, (Shape{2, 4, 160}));
  std::vector<TensorType> grads = EfficientBackward(fused, key, value, r);
  EXPECT_EQ(grads[0].strides, wide_long);
  EXPECT_EQ(grads[2], Gpu(kBf16, narrow, narrow_long));
  std::vector<TensorType> cudnn = Infer("aten::_scaled_dot_product_cudnn_attention_backward",
                                        {fused, key, value, r[0], r[1], r[2]},
                                        {OperandRef{3},
                                         OperandRef{0},
                                         OperandRef{1},
                                         OperandRef{2},
                                         OperandRef{3},
                                         OperandRef{4},
                                         OperandRef{5},
                                         OperandRef{5},
                                         {},
                                         {},
                                         {},
                                         Dim(130),
                                         Dim(130),
                                         0.0,
                                         true,
                                         {}})
                                      .results;
  EXPECT_EQ(cudnn[0], Gpu(kBf16, wide, wide_long));
  EXPECT_EQ(cudnn[2], Gpu(kBf16, narrow, narrow_long));
}

// Grouped queries: eight query heads share two key heads.
TEST(RecordedConformance, GroupedQueries) {
  TensorType query = Gpu(kBf16, {2, 8, 64, 64}, {32768, 64, 512, 1});
  TensorType key = Gpu(kBf16, {2, 2, 64, 64}, {8192, 64, 128, 1});
  Answer flash = Infer("aten::_scaled_dot_product_flash_attention", {query, key, key},
                       {OperandRef{0}, OperandRef{1}, OperandRef{2}, 0.0, true, false, {}});
  EXPECT_EQ(flash.results[0], query);
  EXPECT_EQ(flash.results[1], Gpu(DType::kFloat32, {2, 8, 64}, {512, 64, 1}));
  EXPECT_EQ(CudnnForward(query, key, key, true)[0], query);
  EXPECT_ANY_THROW(EfficientForward(query, key, key, true));
}

}  // namespace
}  // namespace gt::conformance::attention_test
