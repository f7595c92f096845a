#include "gt/ops/view_rules.h"

#include <fmt/format.h>

#include <limits>
#include <string>

#include "gt/ops/rules.h"

namespace gt::rules {
namespace {

std::string Text(const ShapeEnv& env, const Shape& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0) text += ", ";
    text += env.Print(sizes[i]);
  }
  return text + "]";
}

// Strides exactly as of a new tensor, also those of dimensions of size one: libtorch keeps such
// strides in views.
bool IsRowMajor(const ShapeEnv& env, const Shape& sizes, const Shape& strides) {
  Dim expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (strides[i] != expected) return false;
    if (i == 0) break;
    const Dim& size = sizes[i];
    bool positive = size.is_const() ? *size.as_const() >= 1 : env.Bounds(size).low >= 1;
    expected *= positive ? size : Max(size, Dim(1));
  }
  return true;
}

// As Product, with the numbers multiplied first: arithmetic on expressions costs ten times as much.
class ProductOfSizes {
 public:
  void Add(const Dim& size) {
    if (size.is_const()) {
      number_ *= size;
    } else {
      expression_ = expression_.is_const() ? size : expression_ * size;
    }
  }
  Dim Result() const { return expression_.is_const() ? number_ : expression_ * number_; }

 private:
  Dim number_ = 1;
  Dim expression_ = 1;
};

// a < b, where what only data could decide counts as not less.
bool LessOrUnknown(ShapeEnv& env, const Dim& a, const Dim& b) {
  if (std::optional<bool> known = env.KnownLess(a, b)) return *known;
  if (env.HasDataSymbol(a) || env.HasDataSymbol(b)) return false;
  return env.Less(a, b);
}

// Whether a chunk takes more dimensions. Where only data could tell it may: the caller compares
// once more when nothing is left.
bool HasRoom(ShapeEnv& env, const Dim& filled, const Dim& chunk) {
  if (filled.is_const() && chunk.is_const()) return *filled.as_const() < *chunk.as_const();
  if (env.EqualOrUnknown(filled, chunk)) return false;
  if (std::optional<bool> known = env.KnownLess(filled, chunk)) return *known;
  return env.HasDataSymbol(filled) || env.HasDataSymbol(chunk) || env.Less(filled, chunk);
}

// x limited to [low, high]. Input sizes decide by guard; data sizes stay an expression that is
// right for every batch.
Dim Clamped(ShapeEnv& env, Dim x, const Dim& low, const Dim& high) {
  auto decide = [&env](const Dim& a, const Dim& b) -> std::optional<bool> {
    if (std::optional<bool> known = env.KnownLess(a, b)) return known;
    if (env.HasDataSymbol(a) || env.HasDataSymbol(b)) return std::nullopt;
    return env.Less(a, b);
  };
  std::optional<bool> below = decide(x, low);
  if (below == true) return low;
  if (!below) x = Max(x, low);
  std::optional<bool> above = decide(high, x);
  if (above == true) return high;
  return above ? x : Min(x, high);
}

}  // namespace

Dim WithoutClamps(const Dim& dim) {
  if (dim.is_polynomial()) return dim;
  static const Dim::Visitor<Dim> kVisitor{
      [](int64_t value) { return Dim(value); },
      [](SymbolId id) { return Dim::Symbol(id); },
      [](Dim::AtomKind kind, Dim a, Dim b) {
        switch (kind) {
          case Dim::AtomKind::kFloorDiv:
            return FloorDiv(a, b);
          case Dim::AtomKind::kMin:
            return Min(a, b);
          default:
            return a.Is(1) ? b : b.Is(1) ? a : Max(a, b);
        }
      },
      [](Dim a, Dim b) { return a + b; },
      [](Dim a, Dim b) { return a * b; },
  };
  return dim.Fold(kVisitor);
}

Shape InferSize(RuleContext& ctx, const Shape& requested, const Shape& sizes) {
  Shape result = requested;
  int inferred = -1;
  ProductOfSizes product;
  for (size_t i = 0; i < requested.size(); ++i) {
    if (requested[i].Is(-1)) {
      if (inferred >= 0) ctx.Reject("only one size can be -1");
      inferred = static_cast<int>(i);
    } else if (auto value = requested[i].as_const(); value && *value < 0) {
      ctx.Reject(fmt::format("a size cannot be {}", *value));
    } else {
      product.Add(requested[i]);
    }
  }
  ShapeEnv& env = ctx.env();
  ProductOfSizes elements;
  for (const Dim& size : sizes) elements.Add(size);
  Dim known = product.Result(), numel = elements.Result();
  auto mismatch = [&] {
    ctx.Reject(fmt::format("{} does not fit a tensor of sizes {}", Text(env, requested),
                           Text(env, sizes)));
  };
  if (inferred < 0) {
    if (numel != known && !env.Equal(numel, known)) mismatch();
    return result;
  }
  if (env.IsEmptySize(known)) {
    ctx.Reject("a size of -1 means nothing beside a size of zero: any value would do");
  }
  Dim quotient = FloorDiv(numel, known);
  if (quotient * known != numel && !env.Equal(quotient * known, numel)) mismatch();
  result[static_cast<size_t>(inferred)] = std::move(quotient);
  return result;
}

std::optional<Shape> ViewStrides(ShapeEnv& env, const Shape& sizes, const Shape& strides,
                                 const Shape& new_sizes) {
  if (sizes.empty()) return Shape(new_sizes.size(), Dim(1));
  // Right for data-bound sizes too, which the loop below has to treat as nonzero.
  if (IsRowMajor(env, sizes, strides)) return ContiguousStrides(new_sizes, env);
  if (HasNoElements(env, sizes)) {
    return sizes == new_sizes ? strides : ContiguousStrides(new_sizes, env);
  }

  // There are elements, so sizes are at least one and strides need no clamps.
  // Walks both shapes from the back. A chunk is a run of old dimensions evenly spaced in memory;
  // new dimensions must fill each chunk exactly.
  Shape result(new_sizes.size());
  auto view_d = static_cast<int64_t>(new_sizes.size()) - 1;
  Dim base = WithoutClamps(strides.back());
  Dim next_base, chunk = 1, filled = 1;
  for (auto d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    chunk *= sizes[static_cast<size_t>(d)];
    if (d > 0) {
      // The stride first: that it fits shows in the expressions, whether a size is one may need a
      // guard.
      next_base = WithoutClamps(strides[static_cast<size_t>(d - 1)]);
      if (env.EqualOrUnknown(next_base, chunk * base)) continue;
      if (env.IsOne(sizes[static_cast<size_t>(d - 1)])) continue;
    }
    while (view_d >= 0) {
      // Sizes of one belong to the chunk before them.
      const Dim& size = new_sizes[static_cast<size_t>(view_d)];
      if (!HasRoom(env, filled, chunk) && !env.IsOne(size)) break;
      result[static_cast<size_t>(view_d)] = filled * base;
      filled *= size;
      --view_d;
    }
    if (!env.EqualOrUnknown(filled, chunk)) return std::nullopt;
    base = next_base;
    chunk = 1;
    filled = 1;
  }
  if (view_d != -1) return std::nullopt;
  return result;
}

TensorType Reshaped(RuleContext& ctx, const TensorType& self, const Shape& new_sizes) {
  TensorType result{self.dtype, self.device, new_sizes, {}};
  std::optional<Shape> strides = ViewStrides(ctx.env(), self.sizes, self.strides, new_sizes);
  result.strides = strides ? std::move(*strides) : ContiguousStrides(new_sizes, ctx.env());
  return result;
}

SliceBounds ResolveSlice(RuleContext& ctx, const Dim& size, const std::optional<Dim>& start,
                         const std::optional<Dim>& end, const Dim& step) {
  ShapeEnv& env = ctx.env();
  if (!step.is_const() || *step.as_const() <= 0) ctx.Reject("the step must be a positive number");
  auto from_front = [&](const Dim& position) {
    bool negative =
        position.is_const() ? *position.as_const() < 0 : LessOrUnknown(env, position, 0);
    return negative ? position + size : position;
  };
  Dim first = 0;
  if (start && !start->Is(0)) first = Clamped(env, from_front(*start), 0, size);
  Dim last = size;
  // The program's "to the end" arrives as the largest integer.
  if (end && !end->Is(std::numeric_limits<int64_t>::max()) && *end != size) {
    last = Clamped(env, from_front(*end), first, size);
  }
  Dim length = last - first;
  if (!step.Is(1)) length = FloorDiv(length + step - Dim(1), step);
  return {std::move(first), std::move(length)};
}

Dim ResolveIndex(RuleContext& ctx, const Dim& index, const Dim& size) {
  ShapeEnv& env = ctx.env();
  bool negative = index.is_const() ? *index.as_const() < 0 : LessOrUnknown(env, index, 0);
  Dim position = negative ? index + size : index;
  // Of data the kernel will have to check when it runs; the type does not depend on the answer.
  bool data = env.HasDataSymbol(position) || env.HasDataSymbol(size);
  bool outside = data ? env.KnownLess(position, 0).value_or(false) ||
                            !env.KnownLess(position, size).value_or(true)
                      : env.Less(position, 0) || !env.Less(position, size);
  if (outside) {
    ctx.Reject(fmt::format("index {} is out of range for a dimension of size {}", env.Print(index),
                           env.Print(size)));
  }
  return position;
}

namespace {

// A file may ask for a node of a billion results; making them would take all memory.
int64_t CheckedCount(RuleContext& ctx, int64_t count, const char* what) {
  constexpr int64_t kMaxResults = 1 << 16;
  if (count > kMaxResults) {
    ctx.Reject(
        fmt::format("{} is {}, but a node has at most {} results", what, count, kMaxResults));
  }
  return count;
}

}  // namespace

int64_t PinnedCount(RuleContext& ctx, const Dim& count, const char* what) {
  ShapeEnv& env = ctx.env();
  if (std::optional<int64_t> value = env.KnownValue(count)) return CheckedCount(ctx, *value, what);
  if (env.HasDataSymbol(count)) {
    ctx.Reject(
        fmt::format("{} is {}, which depends on data read during the step; a node must have "
                    "a fixed number of results",
                    what, env.Print(count)));
  }
  int64_t value = env.Hint(count);
  // Always true; asked so that the guard exists.
  if (!env.Equal(count, value)) ctx.Reject(fmt::format("{} is not known", what));
  return CheckedCount(ctx, value, what);
}

void RequireContiguous(RuleContext& ctx, const Shape& sizes, const Shape& strides,
                       const char* what) {
  ShapeEnv& env = ctx.env();
  Dim expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    const Dim& size = sizes[i];
    if (strides[i] != expected && !env.IsOne(size) &&
        !env.EqualOrUnknown(WithoutClamps(strides[i]), WithoutClamps(expected))) {
      if (!HasNoElements(env, sizes)) ctx.Reject(what);
      return;
    }
    bool positive = size.is_const() ? *size.as_const() >= 1 : env.Bounds(size).low >= 1;
    if (i > 0) expected *= positive ? size : Max(size, Dim(1));
  }
}

TensorType PreserveStridesClone(RuleContext& ctx, const TensorType& self) {
  ShapeEnv& env = ctx.env();
  TensorType result = self;
  for (size_t i = 0; i < self.sizes.size(); ++i) {
    if (self.strides[i].Is(0) && !self.sizes[i].Is(0) && !env.IsOne(self.sizes[i])) {
      result.strides = PreservedStrides(env, self);
      return result;
    }
  }
  return result;
}

}  // namespace gt::rules
