// Matrix products. A multiply-add counts as two operations.
#include <fmt/format.h>

#include <array>

#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/sharding_rules.h"

namespace gt {
namespace {

using rules::RequireEqual;

constexpr const char* kInner = "the inner dimensions of the product must match";

void CheckProduct(const RuleContext& ctx, const TensorType& a, const TensorType& b, int64_t rank_a,
                  int64_t rank_b) {
  if (a.rank() != rank_a || b.rank() != rank_b) {
    ctx.Reject(fmt::format("needs tensors of rank {} and {}, not {} and {}", rank_a, rank_b,
                           a.rank(), b.rank()));
  }
  if (a.dtype != b.dtype) {
    ctx.Reject(fmt::format("the factors must have one dtype, not {} and {}; convert one of them",
                           DTypeName(a.dtype), DTypeName(b.dtype)));
  }
}

// What is added to a product may be smaller, but must broadcast to it, and it must have its dtype.
void CheckAdded(RuleContext& ctx, const TensorType& added, const Shape& sizes, DType dtype) {
  if (added.dtype != dtype) {
    ctx.Reject(fmt::format("self must have the dtype of the product, {}, not {}", DTypeName(dtype),
                           DTypeName(added.dtype)));
  }
  rules::RequireBroadcastsTo(ctx, added.sizes, sizes, "self must broadcast to the product");
}

void ReturnProduct(RuleContext& ctx, const TensorType& a, Shape sizes) {
  ctx.Return(ContiguousType(a.dtype, a.device, std::move(sizes), ctx.env()));
}

Shape MatrixSizes(RuleContext& ctx, const TensorType& a, const TensorType& b) {
  CheckProduct(ctx, a, b, 2, 2);
  RequireEqual(ctx, a.sizes[1], b.sizes[0], kInner);
  return {a.sizes[0], b.sizes[1]};
}

Shape BatchSizes(RuleContext& ctx, const TensorType& a, const TensorType& b) {
  CheckProduct(ctx, a, b, 3, 3);
  RequireEqual(ctx, a.sizes[0], b.sizes[0], "both factors must have the same number of matrices");
  RequireEqual(ctx, a.sizes[2], b.sizes[1], kInner);
  return {a.sizes[0], a.sizes[1], b.sizes[2]};
}

void MmRule(RuleContext& ctx) {
  const TensorType &a = ctx.Tensor(0), &b = ctx.Tensor(1);
  ReturnProduct(ctx, a, MatrixSizes(ctx, a, b));
}

void BmmRule(RuleContext& ctx) {
  const TensorType &a = ctx.Tensor(0), &b = ctx.Tensor(1);
  ReturnProduct(ctx, a, BatchSizes(ctx, a, b));
}

void AddmmRule(RuleContext& ctx) {
  const TensorType &a = ctx.Tensor(1), &b = ctx.Tensor(2);
  Shape sizes = MatrixSizes(ctx, a, b);
  CheckAdded(ctx, ctx.Tensor(0), sizes, a.dtype);
  ReturnProduct(ctx, a, std::move(sizes));
}

void BaddbmmRule(RuleContext& ctx) {
  const TensorType &a = ctx.Tensor(1), &b = ctx.Tensor(2);
  Shape sizes = BatchSizes(ctx, a, b);
  CheckAdded(ctx, ctx.Tensor(0), sizes, a.dtype);
  ReturnProduct(ctx, a, std::move(sizes));
}

void AddbmmRule(RuleContext& ctx) {
  const TensorType &a = ctx.Tensor(1), &b = ctx.Tensor(2);
  Shape batch = BatchSizes(ctx, a, b);
  Shape sizes = {batch[1], batch[2]};
  CheckAdded(ctx, ctx.Tensor(0), sizes, a.dtype);
  ReturnProduct(ctx, a, std::move(sizes));
}

void DotRule(RuleContext& ctx) {
  const TensorType &a = ctx.Tensor(0), &b = ctx.Tensor(1);
  CheckProduct(ctx, a, b, 1, 1);
  RequireEqual(ctx, a.sizes[0], b.sizes[0], kInner);
  ReturnProduct(ctx, a, {});
}

void MvRule(RuleContext& ctx) {
  const TensorType &a = ctx.Tensor(0), &b = ctx.Tensor(1);
  CheckProduct(ctx, a, b, 2, 1);
  RequireEqual(ctx, a.sizes[1], b.sizes[0], kInner);
  ReturnProduct(ctx, a, {a.sizes[0]});
}

void AddmvRule(RuleContext& ctx) {
  const TensorType &a = ctx.Tensor(1), &b = ctx.Tensor(2);
  CheckProduct(ctx, a, b, 2, 1);
  RequireEqual(ctx, a.sizes[1], b.sizes[0], kInner);
  CheckAdded(ctx, ctx.Tensor(0), {a.sizes[0]}, a.dtype);
  ReturnProduct(ctx, a, {a.sizes[0]});
}

// One of the last two strides must be 1 and the other a multiple of 16 bytes, or the kernel
// refuses.
void CheckGroupedLayout(RuleContext& ctx, const TensorType& matrix, const char* name) {
  ShapeEnv& env = ctx.env();
  size_t last = matrix.sizes.size() - 1;
  const Dim alignment = 16 / ItemSize(matrix.dtype);
  auto at_least = [&](const Dim& stride, const Dim& size) {
    // Data-bound sizes fit: their strides come from them.
    if (std::optional<bool> less = env.KnownLess(stride, size)) return !*less;
    return env.HasDataSymbol(stride) || env.HasDataSymbol(size) || !env.Less(stride, size);
  };
  auto runs_along = [&](size_t dense, size_t other) {
    return env.EqualOrUnknown(matrix.strides[dense], 1) &&
           at_least(matrix.strides[other], Max(matrix.sizes[dense], 1));
  };
  size_t checked;
  if (runs_along(last - 1, last)) {
    checked = last;
  } else if (runs_along(last, last - 1)) {
    checked = last - 1;
  } else {
    ctx.Reject(fmt::format("{} must be dense in one of its last two dimensions", name));
  }
  const Dim& stride = matrix.strides[checked];
  RequireEqual(ctx, Mod(stride, alignment), 0, "strides must be multiples of 16 bytes");
}

// The groups' products in one call. `offs` holds where each group ends: along the rows of a 2-d
// left factor, along the columns of a 2-d right factor, or along the inner dimension when both are
// 2-d.
void GroupedMmRule(RuleContext& ctx) {
  const TensorType &a = ctx.Tensor(0), &b = ctx.Tensor(1);
  const TensorType* offs = ctx.OptionalTensor(2);
  if (a.rank() < 2 || a.rank() > 3 || b.rank() < 2 || b.rank() > 3) {
    ctx.Reject("the factors must have two or three dimensions");
  }
  if (a.dtype != b.dtype) ctx.Reject("the factors must have one dtype");
  if (a.dtype != DType::kBFloat16 && a.dtype != DType::kFloat16 && a.dtype != DType::kFloat32) {
    ctx.Reject(fmt::format("the factors must be bf16, f16 or f32, not {}", DTypeName(a.dtype)));
  }
  if (!ctx.IsNone(3)) ctx.Reject("a bias is not supported by the kernel; add it afterwards");
  bool flat_a = a.rank() == 2, flat_b = b.rank() == 2;
  if (flat_a || flat_b) {
    if (offs == nullptr)
      ctx.Reject("needs offs, the ends of the groups, when a factor has two dimensions");
    if (offs->rank() != 1 || offs->dtype != DType::kInt32) {
      ctx.Reject("offs must be an i32 tensor of one dimension");
    }
  } else if (offs != nullptr) {
    ctx.Reject("offs has no meaning for two factors of three dimensions");
  }
  const Dim& inner_b = b.sizes[b.sizes.size() - 2];
  if (!flat_a || !flat_b) RequireEqual(ctx, a.sizes.back(), inner_b, kInner);
  CheckGroupedLayout(ctx, a, "the left factor");
  CheckGroupedLayout(ctx, b, "the right factor");

  Shape sizes;
  constexpr const char* kGroups = "the number of groups must be the same everywhere";
  if (flat_a && flat_b) {
    sizes = {offs->sizes[0], a.sizes[0], b.sizes[1]};
  } else if (flat_a) {
    RequireEqual(ctx, offs->sizes[0], b.sizes[0], kGroups);
    sizes = {a.sizes[0], b.sizes[2]};
  } else if (flat_b) {
    RequireEqual(ctx, offs->sizes[0], a.sizes[0], kGroups);
    sizes = {a.sizes[1], b.sizes[1]};
  } else {
    RequireEqual(ctx, a.sizes[0], b.sizes[0], kGroups);
    sizes = {a.sizes[0], a.sizes[1], b.sizes[2]};
  }
  DType dtype = ctx.OptionalDType(4).value_or(a.dtype);
  // Rows of the result are padded to 16 bytes, which the GPU's block transfers need; the CPU
  // follows suit.
  Dim alignment = 16 / ItemSize(dtype);
  Dim padded = FloorDiv(sizes.back() + alignment - Dim(1), alignment) * alignment;
  Shape strides;
  if (sizes.size() == 3) strides.push_back(sizes[1] * padded);
  strides.push_back(std::move(padded));
  strides.emplace_back(1);
  ctx.Return({dtype, a.device, std::move(sizes), std::move(strides)});
}

void MmSharding(ShardingContext& ctx) { rules::AddProductRows(ctx, -1, "mk", "kn", "mn"); }
void BmmSharding(ShardingContext& ctx) { rules::AddProductRows(ctx, -1, "bmk", "bkn", "bmn"); }
void AddmmSharding(ShardingContext& ctx) { rules::AddProductRows(ctx, 0, "mk", "kn", "mn"); }
void BaddbmmSharding(ShardingContext& ctx) { rules::AddProductRows(ctx, 0, "bmk", "bkn", "bmn"); }
void AddbmmSharding(ShardingContext& ctx) { rules::AddProductRows(ctx, 0, "bmk", "bkn", "mn"); }
void DotSharding(ShardingContext& ctx) { rules::AddProductRows(ctx, -1, "k", "k", ""); }
void MvSharding(ShardingContext& ctx) { rules::AddProductRows(ctx, -1, "mk", "k", "m"); }
void AddmvSharding(ShardingContext& ctx) { rules::AddProductRows(ctx, 0, "mk", "k", "m"); }

// Dimensions along which groups lie stay whole: where a group ends is counted in all of it. An
// upper-case letter is such a dimension.
void GroupedMmSharding(ShardingContext& ctx) {
  const TensorType &a = rules::TensorAt(ctx, 0), &b = rules::TensorAt(ctx, 1);
  const bool flat_a = a.rank() == 2, flat_b = b.rank() == 2;
  // The kernel wants rows of whole 16 bytes.
  const int64_t alignment = 16 / ItemSize(a.dtype);
  if (flat_a && flat_b) rules::AddProductRows(ctx, -1, "mK", "Kn", "Gmn", alignment);
  if (flat_a && !flat_b) rules::AddProductRows(ctx, -1, "Mk", "Gkn", "Mn", alignment);
  if (!flat_a && flat_b) rules::AddProductRows(ctx, -1, "Gmk", "kN", "mN", alignment);
  if (!flat_a && !flat_b) rules::AddProductRows(ctx, -1, "gmk", "gkn", "gmn", alignment);
}

template <int kFirst>
Dim MatrixFlops(const CostContext& ctx) {
  const TensorType &a = ctx.Tensor(kFirst), &b = ctx.Tensor(kFirst + 1);
  return Dim(2) * a.sizes[0] * a.sizes[1] * b.sizes[1];
}

template <int kFirst>
Dim BatchFlops(const CostContext& ctx) {
  const TensorType &a = ctx.Tensor(kFirst), &b = ctx.Tensor(kFirst + 1);
  return Dim(2) * a.sizes[0] * a.sizes[1] * a.sizes[2] * b.sizes[2];
}

template <int kFirst>
Dim VectorFlops(const CostContext& ctx) {
  return Dim(2) * ctx.Tensor(kFirst).numel();
}

// Each row, column or inner slice belongs to one group, so the groups share one product of the flat
// extents.
Dim GroupedFlops(const CostContext& ctx) {
  const TensorType &a = ctx.Tensor(0), &b = ctx.Tensor(1);
  Dim flops = Dim(2) * a.sizes[a.sizes.size() - 2] * a.sizes.back() * b.sizes.back();
  return a.rank() == 3 && b.rank() == 3 ? flops * a.sizes[0] : flops;
}

}  // namespace

void RegisterMatmul(OperatorTable& table) {
  OperatorGroup products(table, {.work = Work::kProduct, .order = DimOrder::kKept});
  // Policies keep what torchtitan's keep: no product that adds to a batch.
  auto kept = [&products](std::string_view schema, ShapeRule rule, CostRule flops,
                          ShardingRule sharding, RecomputeClass recompute) {
    Operator& op = products.Add(schema, rule);
    op.flops = flops;
    op.sharding = sharding;
    op.recompute = recompute;
  };
  kept("aten::mm(Tensor self, Tensor mat2) -> Tensor", MmRule, MatrixFlops<0>, MmSharding,
       RecomputeClass::kPlainProduct);
  kept("aten::bmm(Tensor self, Tensor mat2) -> Tensor", BmmRule, BatchFlops<0>, BmmSharding,
       RecomputeClass::kProduct);
  kept(
      "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) "
      "-> Tensor",
      AddmmRule, MatrixFlops<1>, AddmmSharding, RecomputeClass::kProduct);
  auto added = [](OperatorGroup& group, std::string_view schema, ShapeRule rule, CostRule flops,
                  ShardingRule sharding) {
    Operator& op = group.Add(schema, rule);
    op.flops = flops;
    op.sharding = sharding;
  };
  added(products,
        "aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, "
        "Scalar alpha=1) -> Tensor",
        BaddbmmRule, BatchFlops<1>, BaddbmmSharding);
  added(products,
        "aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, "
        "Scalar alpha=1) -> Tensor",
        AddbmmRule, BatchFlops<1>, AddbmmSharding);

  // Reading the matrix takes longer than the arithmetic.
  OperatorGroup vectors(table, {.work = Work::kReduction, .order = DimOrder::kKept});
  added(vectors, "aten::dot(Tensor self, Tensor tensor) -> Tensor", DotRule, VectorFlops<0>,
        DotSharding);
  added(vectors, "aten::mv(Tensor self, Tensor vec) -> Tensor", MvRule, VectorFlops<0>, MvSharding);
  added(vectors,
        "aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> "
        "Tensor",
        AddmvRule, VectorFlops<1>, AddmvSharding);

  table.Add(
      "aten::_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, "
      "ScalarType? out_dtype=None) -> Tensor",
      GroupedMmRule,
      {.work = Work::kGroupedProduct,
       .order = DimOrder::kKept,
       .flops = GroupedFlops,
       .sharding = GroupedMmSharding,
       .integers = IntegerOperands::kGroupEnds,
       .recompute = RecomputeClass::kLarge,
       .host = HostPart::kUnlessBFloat16});
}

}  // namespace gt
