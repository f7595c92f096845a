// Views: the same elements under other sizes, strides, dtype or order. Also the copies that
// functionalization may put in their place (*_copy), and what gives a view's gradient or an updated
// view back to its base (*_backward, *_scatter).
#include <fmt/format.h>

#include <algorithm>

#include "gt/ops/registry.h"
#include "gt/ops/rules.h"
#include "gt/ops/sharding_rules.h"
#include "gt/ops/view_rules.h"
#include "gt/ops/view_sharding.h"

namespace gt {
namespace {

using rules::NormalizeDim;

size_t DimAt(const RuleContext& ctx, int arg, const TensorType& self) {
  return static_cast<size_t>(NormalizeDim(ctx, ctx.ConstInt(arg), self.rank()));
}

void SameRule(RuleContext& ctx) { ctx.ReturnView(ctx.Tensor(0), 0); }

void ViewRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  Shape sizes = rules::InferSize(ctx, ctx.Ints(1), self.sizes);
  std::optional<Shape> strides = rules::ViewStrides(ctx.env(), self.sizes, self.strides, sizes);
  if (!strides) {
    ctx.Reject(
        "the elements do not lie in memory as this view would need them; use reshape, which "
        "copies");
  }
  ctx.ReturnView({self.dtype, self.device, std::move(sizes), std::move(*strides)}, 0);
}

void ViewCopyRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return(ContiguousType(self.dtype, self.device, rules::InferSize(ctx, ctx.Ints(1), self.sizes),
                            ctx.env()));
}

void ReshapeRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  ctx.Return(rules::Reshaped(ctx, self, rules::InferSize(ctx, ctx.Ints(1), self.sizes)));
}

// view.dtype: the last dimension grows or shrinks with the size of an element.
void ViewDTypeRule(RuleContext& ctx) {
  TensorType type = ctx.Tensor(0);
  DType dtype = *ctx.OptionalDType(1);
  int64_t from = ItemSize(type.dtype), to = ItemSize(dtype);
  type.dtype = dtype;
  if (from != to) {
    if (type.sizes.empty()) ctx.Reject("a tensor without dimensions keeps its element size");
    if (!ctx.env().EqualOrUnknown(type.strides.back(), 1)) {
      ctx.Reject("the last dimension must have stride 1 to be read with another element size");
    }
    if (from > to) {
      Dim ratio = from / to;
      for (size_t i = 0; i + 1 < type.strides.size(); ++i) type.strides[i] *= ratio;
      type.sizes.back() *= ratio;
    } else {
      Dim ratio = to / from;
      auto divide = [&](Dim& value, const char* what) {
        Dim quotient = FloorDiv(value, ratio);
        rules::RequireEqual(ctx, quotient * ratio, value, what);
        value = std::move(quotient);
      };
      divide(type.sizes.back(), "the last size must be a multiple of the ratio of element sizes");
      for (size_t i = 0; i + 1 < type.strides.size(); ++i) {
        divide(type.strides[i], "strides must be multiples of the ratio of element sizes");
      }
    }
  }
  ctx.ReturnView(std::move(type), 0);
}

void ReshapeAliasRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  if (ctx.Ints(1).size() != ctx.Ints(2).size()) ctx.Reject("needs as many strides as sizes");
  ctx.ReturnView({self.dtype, self.device, ctx.Ints(1), ctx.Ints(2)}, 0);
}

// The offset counts from the beginning of the storage, and a value that is no view begins there. On
// a view it would mean something else than on the same elements in a tensor of their own, so passes
// must not move it to other bases.
template <int kArg = 1>
void AsStridedRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  const Shape &sizes = ctx.Ints(kArg), &strides = ctx.Ints(kArg + 1);
  if (sizes.size() != strides.size()) ctx.Reject("needs as many strides as sizes");
  ctx.ReturnView({self.dtype, self.device, sizes, strides},
                 ctx.OptionalInt(kArg + 2).value_or(Dim(0)));
}

void TRule(RuleContext& ctx) {
  TensorType type = ctx.Tensor(0);
  if (type.rank() > 2) ctx.Reject("takes at most two dimensions; use transpose");
  if (type.rank() == 2) {
    std::swap(type.sizes[0], type.sizes[1]);
    std::swap(type.strides[0], type.strides[1]);
  }
  ctx.ReturnView(std::move(type), 0);
}

void TransposeRule(RuleContext& ctx) {
  TensorType type = ctx.Tensor(0);
  size_t a = DimAt(ctx, 1, type), b = DimAt(ctx, 2, type);
  if (a != b) {
    std::swap(type.sizes[a], type.sizes[b]);
    std::swap(type.strides[a], type.strides[b]);
  }
  ctx.ReturnView(std::move(type), 0);
}

void PermuteRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  const Shape& dims = ctx.Ints(1);
  if (dims.size() != self.sizes.size()) ctx.Reject("needs each dimension exactly once");
  TensorType type{self.dtype, self.device, Shape(dims.size()), Shape(dims.size())};
  uint64_t seen = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!dims[i].is_const()) ctx.Reject("dimensions must be plain integers");
    int64_t dim = NormalizeDim(ctx, *dims[i].as_const(), self.rank());
    if (seen >> dim & 1) ctx.Reject("needs each dimension exactly once");
    seen |= uint64_t{1} << dim;
    type.sizes[i] = self.sizes[static_cast<size_t>(dim)];
    type.strides[i] = self.strides[static_cast<size_t>(dim)];
  }
  ctx.ReturnView(std::move(type), 0);
}

void ExpandRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  Shape sizes = ctx.Ints(1);
  if (sizes.size() < self.sizes.size()) ctx.Reject("cannot drop dimensions");
  size_t added = sizes.size() - self.sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].Is(-1)) continue;
    if (i < added) ctx.Reject("a new dimension needs a size; -1 keeps that of an existing one");
    sizes[i] = self.sizes[i - added];
  }
  ShapeEnv& env = ctx.env();
  Shape strides(sizes.size());
  for (size_t i = sizes.size(); i-- > 0;) {
    if (self.sizes.empty()) break;  // strides stay 0, also those of size one
    bool is_new = i < added;
    const Dim& size = is_new ? Dim(1) : self.sizes[i - added];
    if (size == sizes[i] || (!size.is_const() && env.EqualOrUnknown(size, sizes[i]))) {
      strides[i] = is_new ? sizes[i + 1] * strides[i + 1] : self.strides[i - added];
    } else if (!size.Is(1) && !env.IsOne(size)) {
      // Two expressions that data could still prove equal are compared for good here.
      rules::RequireEqual(ctx, size, sizes[i], "only a dimension of size 1 can be expanded");
      strides[i] = self.strides[i - added];
    } else if (env.IsOne(sizes[i])) {
      strides[i] = is_new ? sizes[i + 1] * strides[i + 1] : self.strides[i - added];
    }
  }
  ctx.ReturnView({self.dtype, self.device, std::move(sizes), std::move(strides)}, 0);
}

void UnsqueezeRule(RuleContext& ctx) {
  TensorType type = ctx.Tensor(0);
  int64_t dim = NormalizeDim(ctx, ctx.ConstInt(1), type.rank() + 1);
  auto at = static_cast<size_t>(dim);
  Dim stride = at < type.sizes.size() ? type.sizes[at] * type.strides[at] : Dim(1);
  type.sizes.insert(type.sizes.begin() + dim, Dim(1));
  type.strides.insert(type.strides.begin() + dim, std::move(stride));
  ctx.ReturnView(std::move(type), 0);
}

void Squeeze(RuleContext& ctx, uint64_t mask) {
  const TensorType& self = ctx.Tensor(0);
  TensorType type{self.dtype, self.device, {}, {}};
  for (size_t i = 0; i < self.sizes.size(); ++i) {
    // Not IsOne: how many dimensions are left must not depend on data.
    if ((mask >> i & 1) && ctx.env().Equal(self.sizes[i], 1)) continue;
    type.sizes.push_back(self.sizes[i]);
    type.strides.push_back(self.strides[i]);
  }
  ctx.ReturnView(std::move(type), 0);
}

void SqueezeRule(RuleContext& ctx) { Squeeze(ctx, ~uint64_t{0}); }

void SqueezeDimRule(RuleContext& ctx) {
  Squeeze(ctx, uint64_t{1} << NormalizeDim(ctx, ctx.ConstInt(1), ctx.Tensor(0).rank()));
}

void SqueezeDimsRule(RuleContext& ctx) {
  Squeeze(ctx, rules::DimMask(ctx, ctx.Ints(1), ctx.Tensor(0).rank(), /*empty_is_all=*/false));
}

template <int kArg = 1>
void SliceRule(RuleContext& ctx) {
  TensorType type = ctx.Tensor(0);
  if (type.sizes.empty()) ctx.Reject("a tensor without dimensions cannot be sliced");
  size_t dim = DimAt(ctx, kArg, type);
  const Dim& step = ctx.Int(kArg + 3);
  rules::SliceBounds bounds = rules::ResolveSlice(ctx, type.sizes[dim], ctx.OptionalInt(kArg + 1),
                                                  ctx.OptionalInt(kArg + 2), step);
  Dim offset = bounds.start * type.strides[dim];
  type.sizes[dim] = std::move(bounds.length);
  type.strides[dim] *= step;
  ctx.ReturnView(std::move(type), std::move(offset));
}

template <int kArg = 1>
void SelectRule(RuleContext& ctx) {
  TensorType type = ctx.Tensor(0);
  if (type.sizes.empty()) ctx.Reject("a tensor without dimensions has nothing to select from");
  int64_t dim = NormalizeDim(ctx, ctx.ConstInt(kArg), type.rank());
  auto at = static_cast<size_t>(dim);
  Dim offset = rules::ResolveIndex(ctx, ctx.Int(kArg + 1), type.sizes[at]) * type.strides[at];
  type.sizes.erase(type.sizes.begin() + dim);
  type.strides.erase(type.strides.begin() + dim);
  ctx.ReturnView(std::move(type), std::move(offset));
}

void SplitRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  if (self.sizes.empty()) ctx.Reject("a tensor without dimensions cannot be split");
  size_t dim = DimAt(ctx, 2, self);
  const Dim& size = self.sizes[dim];
  const Dim& split = ctx.Int(1);
  int64_t count = 1;
  if (ctx.env().IsEmptySize(split)) {
    rules::RequireEqual(ctx, size, 0, "parts of size 0 are all that an empty dimension has");
  } else if (auto value = split.as_const(); value && *value < 0) {
    ctx.Reject("parts cannot have negative size");
  } else if (split != size) {
    count =
        std::max<int64_t>(rules::PinnedCount(ctx, CeilDiv(size, split), "the number of parts"), 1);
  }
  Dim offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    TensorType part = self;
    part.sizes[dim] = i + 1 < count ? split : size - Dim(count - 1) * split;
    ctx.ReturnView(std::move(part), offset);
    offset += split * self.strides[dim];
  }
}

void SplitWithSizesRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  if (self.sizes.empty()) ctx.Reject("a tensor without dimensions cannot be split");
  size_t dim = DimAt(ctx, 2, self);
  Dim sum = 0, offset = 0;
  for (const Dim& size : ctx.Ints(1)) {
    if (auto value = size.as_const(); value && *value < 0)
      ctx.Reject("parts cannot have negative size");
    TensorType part = self;
    part.sizes[dim] = size;
    ctx.ReturnView(std::move(part), offset);
    offset += size * self.strides[dim];
    sum += size;
  }
  rules::RequireEqual(ctx, sum, self.sizes[dim], "the parts must add up to the dimension's size");
}

void UnbindRule(RuleContext& ctx) {
  const TensorType& self = ctx.Tensor(0);
  if (self.sizes.empty()) ctx.Reject("a tensor without dimensions cannot be taken apart");
  int64_t dim = NormalizeDim(ctx, ctx.ConstInt(1), self.rank());
  auto at = static_cast<size_t>(dim);
  int64_t count = rules::PinnedCount(ctx, self.sizes[at], "the size of the dimension");
  TensorType part = self;
  part.sizes.erase(part.sizes.begin() + dim);
  part.strides.erase(part.strides.begin() + dim);
  for (int64_t i = 0; i < count; ++i) ctx.ReturnView(part, Dim(i) * self.strides[at]);
}

template <int kArg = 1>
void DiagonalRule(RuleContext& ctx) {
  TensorType type = ctx.Tensor(0);
  int64_t shift = ctx.ConstInt(kArg);
  size_t a = DimAt(ctx, kArg + 1, type), b = DimAt(ctx, kArg + 2, type);
  if (type.rank() < 2 || a == b) ctx.Reject("needs two different dimensions");
  ShapeEnv& env = ctx.env();
  Dim rows = shift < 0 ? type.sizes[a] + Dim(shift) : type.sizes[a];
  Dim columns = shift < 0 ? type.sizes[b] : type.sizes[b] - Dim(shift);
  auto less = [&env](const Dim& x, const Dim& y) -> std::optional<bool> {
    if (std::optional<bool> known = env.KnownLess(x, y)) return known;
    if (env.HasDataSymbol(x) || env.HasDataSymbol(y)) return std::nullopt;
    return env.Less(x, y);
  };
  std::optional<bool> wide = less(rows, columns);
  Dim length = wide ? (*wide ? rows : columns) : Min(rows, columns);
  std::optional<bool> negative = less(length, 0);
  if (negative == true) length = 0;
  if (!negative) length = Max(length, 0);
  Dim offset = 0;
  if (!env.IsEmptySize(length)) {
    offset = shift < 0 ? Dim(-shift) * type.strides[a] : Dim(shift) * type.strides[b];
  }
  Dim stride = type.strides[a] + type.strides[b];
  for (size_t dim : {std::max(a, b), std::min(a, b)}) {
    type.sizes.erase(type.sizes.begin() + static_cast<int64_t>(dim));
    type.strides.erase(type.strides.begin() + static_cast<int64_t>(dim));
  }
  type.sizes.push_back(std::move(length));
  type.strides.push_back(std::move(stride));
  ctx.ReturnView(std::move(type), std::move(offset));
}

void UnfoldRule(RuleContext& ctx) {
  TensorType type = ctx.Tensor(0);
  size_t dim = DimAt(ctx, 1, type);
  Dim window = ctx.ConstInt(2), step = ctx.ConstInt(3);
  if (*step.as_const() <= 0) ctx.Reject("the step must be positive");
  if (*window.as_const() < 0) ctx.Reject("the window cannot have negative size");
  const Dim size = type.sizes.empty() ? Dim(1) : type.sizes[dim];
  if (!ctx.env().LessOrEqual(window, size)) ctx.Reject("the window is larger than the dimension");
  if (type.sizes.empty()) {
    type.sizes.push_back(window);
    type.strides.emplace_back(1);
  } else {
    Dim stride = type.strides[dim];
    type.sizes[dim] = FloorDiv(size - window, step) + Dim(1);
    type.strides[dim] *= step;
    type.sizes.push_back(window);
    type.strides.push_back(std::move(stride));
  }
  ctx.ReturnView(std::move(type), 0);
}

void ViewAsRealRule(RuleContext& ctx) {
  TensorType type = ctx.Tensor(0);
  if (!IsComplex(type.dtype)) ctx.Reject("needs a complex tensor");
  type.dtype = RealOf(type.dtype);
  for (Dim& stride : type.strides) stride *= 2;
  type.sizes.emplace_back(2);
  type.strides.emplace_back(1);
  ctx.ReturnView(std::move(type), 0);
}

void ViewAsComplexRule(RuleContext& ctx) {
  TensorType type = ctx.Tensor(0);
  if (type.dtype != DType::kFloat32 && type.dtype != DType::kFloat64) {
    ctx.Reject(fmt::format("needs f32 or f64, not {}", DTypeName(type.dtype)));
  }
  ShapeEnv& env = ctx.env();
  if (type.sizes.empty() || !env.EqualOrUnknown(type.sizes.back(), 2) ||
      !env.EqualOrUnknown(type.strides.back(), 1)) {
    ctx.Reject("the last dimension must hold the two parts: size 2, stride 1");
  }
  type.dtype = ComplexOf(type.dtype);
  type.sizes.pop_back();
  type.strides.pop_back();
  for (size_t i = 0; i < type.strides.size(); ++i) {
    Dim half = FloorDiv(type.strides[i], 2);
    if (half * Dim(2) != type.strides[i] && !env.IsOne(type.sizes[i])) {
      rules::RequireEqual(ctx, half * Dim(2), type.strides[i],
                          "strides must be even to be read in pairs");
    }
    type.strides[i] = std::move(half);
  }
  ctx.ReturnView(std::move(type), 0);
}

// The copy of a view: same sizes and dtype, row-major.
template <ShapeRule kView>
void CopyRule(RuleContext& ctx) {
  kView(ctx);
  for (TensorType& type : ctx.results()) type.strides = ContiguousStrides(type.sizes, ctx.env());
}

// slice_backward, select_backward, ...: zeros of the base's sizes with the gradient put in its
// place.
void BaseGradientRule(RuleContext& ctx) {
  const TensorType& grad = ctx.Tensor(0);
  ctx.Return(ContiguousType(grad.dtype, grad.device, ctx.Ints(1), ctx.env()));
}

// *_scatter: the base with one view of it replaced by `src`, which must look like that view.
template <ShapeRule kView>
void ScatterRule(RuleContext& ctx) {
  kView(ctx);
  Shape replaced = std::move(ctx.results()[0].sizes);
  ctx.results().clear();
  ctx.offsets().clear();
  const Shape& given = ctx.Tensor(1).sizes;
  if (given.size() != replaced.size()) ctx.Reject("src must have the rank of the view it replaces");
  for (size_t i = 0; i < given.size(); ++i) {
    rules::RequireEqual(ctx, given[i], replaced[i],
                        "src must have the sizes of the view it replaces");
  }
  ctx.Return(rules::PreserveStridesClone(ctx, ctx.Tensor(0)));
}

}  // namespace

void RegisterViews(OperatorTable& table) {
  using rules::LinearSharding;
  using rules::RegroupSharding;
  auto view = [&table](const char* schema, ShapeRule rule, ShardingRule sharding, ViewKind kind,
                       DimOrder order = DimOrder::kKept) -> Operator& {
    return table.Add(schema, rule,
                     {.work = Work::kView,
                      .order = order,
                      .sharding = sharding,
                      .view = kind,
                      .linearity = Linearity::kOneOperand});
  };
  view("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", ViewRule, RegroupSharding,
       ViewKind::kReshape, DimOrder::kRegrouped);
  Operator& reinterpret =
      view("aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)", ViewDTypeRule,
           rules::ReinterpretSharding, ViewKind::kReinterpret, DimOrder::kRegrouped);
  reinterpret.linearity = Linearity::kNone;
  view("aten::_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)",
       ReshapeAliasRule, nullptr, ViewKind::kStrides, DimOrder::kRegrouped);
  view("aten::t(Tensor(a) self) -> Tensor(a)", TRule, rules::TSharding, ViewKind::kGeometry);
  view("aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", TransposeRule,
       rules::TransposeSharding, ViewKind::kGeometry);
  view("aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)", PermuteRule,
       rules::PermuteSharding, ViewKind::kGeometry);
  view("aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)",
       ExpandRule, rules::ExpandSharding, ViewKind::kGeometry);
  view(
      "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, "
      "SymInt step=1) -> Tensor(a)",
      SliceRule<>, rules::SliceSharding, ViewKind::kGeometry);
  view("aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)", SelectRule<>,
       rules::SelectSharding, ViewKind::kGeometry);
  view("aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]",
       SplitRule, rules::SplitSharding, ViewKind::kGeometry);
  view(
      "aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]",
      SplitWithSizesRule, rules::SplitSharding, ViewKind::kGeometry);
  view("aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]", UnbindRule,
       rules::UnbindSharding, ViewKind::kGeometry);
  view("aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)", UnsqueezeRule,
       rules::UnsqueezeSharding, ViewKind::kSameOrder);
  view("aten::squeeze(Tensor(a) self) -> Tensor(a)", SqueezeRule, rules::SqueezeSharding,
       ViewKind::kSameOrder);
  view("aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)", SqueezeDimRule,
       rules::SqueezeSharding, ViewKind::kSameOrder);
  view("aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)", SqueezeDimsRule,
       rules::SqueezeSharding, ViewKind::kSameOrder);
  view("aten::alias(Tensor(a) self) -> Tensor(a)", SameRule, LinearSharding, ViewKind::kSameOrder);
  view("aten::detach(Tensor(a) self) -> Tensor(a)", SameRule, LinearSharding, ViewKind::kSameOrder);
  view(
      "aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, "
      "SymInt? storage_offset=None) -> Tensor(a)",
      AsStridedRule<>, nullptr, ViewKind::kStorage, DimOrder::kUnknown);
  view("aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)",
       DiagonalRule<>, rules::DiagonalSharding, ViewKind::kGeometry, DimOrder::kUnknown);
  view("aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)", UnfoldRule,
       rules::UnfoldSharding, ViewKind::kGeometry, DimOrder::kUnknown);
  view("aten::view_as_real(Tensor(a) self) -> Tensor(a)", ViewAsRealRule,
       rules::ComplexPartsSharding, ViewKind::kReinterpret);
  view("aten::view_as_complex(Tensor(a) self) -> Tensor(a)", ViewAsComplexRule,
       rules::ComplexPartsSharding, ViewKind::kReinterpret);
  // Conjugation and negation are bits on the tensor that the next kernel reads; types do not show
  // them.
  view("aten::_conj(Tensor(a) self) -> Tensor(a)", SameRule, LinearSharding,
       ViewKind::kReinterpret);
  view("aten::_neg_view(Tensor(a) self) -> Tensor(a)", SameRule, LinearSharding,
       ViewKind::kReinterpret);

  // By schema its result is fresh, because nobody keeps the original; in memory it is a view.
  table.Add("aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor", ViewRule,
            {.work = Work::kView,
             .order = DimOrder::kRegrouped,
             .sharding = RegroupSharding,
             .view = ViewKind::kReshape,
             .aliasing = Aliasing::kAlways,
             .linearity = Linearity::kOneOperand});
  // Composite, so no capture contains it, but passes write it. Whether it copies depends on the
  // strides, so that nobody may count on either.
  table.Add("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", ReshapeRule,
            {.work = Work::kMove,
             .order = DimOrder::kRegrouped,
             .flops = rules::NoFlops,
             .sharding = RegroupSharding,
             .view = ViewKind::kReshape,
             .aliasing = Aliasing::kMayAlias});

  OperatorGroup copies(table,
                       {.work = Work::kSelect, .order = DimOrder::kKept, .flops = rules::NoFlops});
  copies.Add("aten::t_copy(Tensor self) -> Tensor", CopyRule<TRule>).sharding = rules::TSharding;
  copies
      .Add("aten::transpose_copy.int(Tensor self, int dim0, int dim1) -> Tensor",
           CopyRule<TransposeRule>)
      .sharding = rules::TransposeSharding;
  copies.Add("aten::permute_copy(Tensor self, int[] dims) -> Tensor", CopyRule<PermuteRule>)
      .sharding = rules::PermuteSharding;
  copies
      .Add("aten::expand_copy(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor",
           CopyRule<ExpandRule>)
      .sharding = rules::ExpandSharding;
  copies.Add("aten::unsqueeze_copy(Tensor self, int dim) -> Tensor", CopyRule<UnsqueezeRule>)
      .sharding = rules::UnsqueezeSharding;
  copies.Add("aten::squeeze_copy(Tensor self) -> Tensor", CopyRule<SqueezeRule>).sharding =
      rules::SqueezeSharding;
  copies.Add("aten::squeeze_copy.dim(Tensor self, int dim) -> Tensor", CopyRule<SqueezeDimRule>)
      .sharding = rules::SqueezeSharding;
  copies.Add("aten::squeeze_copy.dims(Tensor self, int[] dim) -> Tensor", CopyRule<SqueezeDimsRule>)
      .sharding = rules::SqueezeSharding;
  copies
      .Add(
          "aten::slice_copy.Tensor(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, "
          "SymInt step=1) -> Tensor",
          CopyRule<SliceRule<>>)
      .sharding = rules::SliceSharding;
  copies
      .Add("aten::select_copy.int(Tensor self, int dim, SymInt index) -> Tensor",
           CopyRule<SelectRule<>>)
      .sharding = rules::SelectSharding;
  copies
      .Add("aten::split_copy.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]",
           CopyRule<SplitRule>)
      .sharding = rules::SplitSharding;
  copies
      .Add("aten::split_with_sizes_copy(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]",
           CopyRule<SplitWithSizesRule>)
      .sharding = rules::SplitSharding;
  copies.Add("aten::unbind_copy.int(Tensor self, int dim=0) -> Tensor[]", CopyRule<UnbindRule>)
      .sharding = rules::UnbindSharding;
  copies.Add("aten::alias_copy(Tensor self) -> Tensor", CopyRule<SameRule>).sharding =
      LinearSharding;
  copies.Add("aten::detach_copy(Tensor self) -> Tensor", CopyRule<SameRule>).sharding =
      LinearSharding;
  copies.Add("aten::view_as_real_copy(Tensor self) -> Tensor", CopyRule<ViewAsRealRule>).sharding =
      rules::ComplexPartsSharding;
  copies.Add("aten::view_as_complex_copy(Tensor self) -> Tensor", CopyRule<ViewAsComplexRule>)
      .sharding = rules::ComplexPartsSharding;
  copies.Add("aten::_conj_copy(Tensor self) -> Tensor", CopyRule<SameRule>).sharding =
      LinearSharding;

  OperatorGroup regrouped(
      table, {.work = Work::kSelect, .order = DimOrder::kRegrouped, .flops = rules::NoFlops});
  regrouped.Add("aten::view_copy(Tensor self, SymInt[] size) -> Tensor", ViewCopyRule).sharding =
      RegroupSharding;
  regrouped
      .Add("aten::view_copy.dtype(Tensor self, ScalarType dtype) -> Tensor",
           CopyRule<ViewDTypeRule>)
      .sharding = rules::ReinterpretSharding;
  regrouped.Add("aten::_reshape_alias_copy(Tensor self, SymInt[] size, SymInt[] stride) -> Tensor",
                CopyRule<ReshapeAliasRule>);

  OperatorGroup rearranged(
      table, {.work = Work::kSelect, .order = DimOrder::kUnknown, .flops = rules::NoFlops});
  rearranged.Add(
      "aten::as_strided_copy(Tensor self, SymInt[] size, SymInt[] stride, "
      "SymInt? storage_offset=None) -> Tensor",
      CopyRule<AsStridedRule<>>);
  rearranged
      .Add("aten::diagonal_copy(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor",
           CopyRule<DiagonalRule<>>)
      .sharding = rules::DiagonalSharding;
  rearranged
      .Add("aten::unfold_copy(Tensor self, int dimension, int size, int step) -> Tensor",
           CopyRule<UnfoldRule>)
      .sharding = rules::UnfoldSharding;

  OperatorGroup placed(table,
                       {.work = Work::kMove, .order = DimOrder::kKept, .flops = rules::NoFlops});
  placed
      .Add(
          "aten::slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, "
          "SymInt end, SymInt step) -> Tensor",
          BaseGradientRule)
      .sharding = rules::SliceBackwardSharding;
  placed
      .Add(
          "aten::select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) "
          "-> "
          "Tensor",
          BaseGradientRule)
      .sharding = rules::SelectBackwardSharding;
  placed
      .Add(
          "aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, "
          "SymInt? end=None, SymInt step=1) -> Tensor",
          ScatterRule<SliceRule<2>>)
      .sharding = rules::SliceScatterSharding;
  placed
      .Add("aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor",
           ScatterRule<SelectRule<2>>)
      .sharding = rules::SelectScatterSharding;

  OperatorGroup arranged(
      table, {.work = Work::kMove, .order = DimOrder::kUnknown, .flops = rules::NoFlops});
  arranged
      .Add(
          "aten::diagonal_backward(Tensor grad_output, SymInt[] input_sizes, int offset, int dim1, "
          "int dim2) -> Tensor",
          BaseGradientRule)
      .sharding = rules::DiagonalBackwardSharding;
  Operator& unfold_backward = arranged.Add(
      "aten::unfold_backward(Tensor grad_in, SymInt[] input_sizes, int dim, int size, int step) "
      "-> Tensor",
      BaseGradientRule);
  unfold_backward.flops = nullptr;
  unfold_backward.sharding = rules::UnfoldBackwardSharding;
  arranged
      .Add(
          "aten::diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) "
          "-> "
          "Tensor",
          ScatterRule<DiagonalRule<2>>)
      .sharding = rules::DiagonalScatterSharding;
  arranged.Add(
      "aten::as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, "
      "SymInt? storage_offset=None) -> Tensor",
      ScatterRule<AsStridedRule<2>>);
}

}  // namespace gt
