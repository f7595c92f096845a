// Cases of ops/views.cc.
#include "gt/conformance/harness.h"

namespace gt::conformance::views_test {
namespace {

// Any dtype: views do not look at it.
Case& Self(Case& c, int min_rank = 0, LayoutChoice layout = LayoutChoice::kAny) {
  return c.Tensor(c.Pick(kAllTypes), c.RandomShape(min_rank, 4), {.layout = layout});
}

const Shape& SelfSizes(Case& c) { return c.operand_type(0).sizes; }
int64_t SelfRank(Case& c) { return c.operand_type(0).rank(); }
Case& OneDim(Case& c) { return c.Int(c.RandomDim(SelfRank(c))); }

// Other sizes of equally many elements: neighbours merged, numbers split, ones put in between, one
// size left open.
Shape Regrouped(Case& c, const Shape& shape) {
  Shape result;
  for (const Dim& size : shape) {
    if (c.Chance(0.15)) result.emplace_back(1);
    auto value = size.as_const();
    if (!result.empty() && c.Chance(0.35)) {
      result.back() *= size;
    } else if (value && *value == 4 && c.Chance(0.5)) {
      result.emplace_back(2);
      result.emplace_back(2);
    } else if (size.Is(1) && c.Chance(0.5)) {
      continue;
    } else {
      result.push_back(size);
    }
  }
  if (c.Chance(0.15)) result.emplace_back(1);
  if (!result.empty() && c.Chance(0.25)) {
    result[static_cast<size_t>(c.Random(0, static_cast<int64_t>(result.size()) - 1))] = -1;
  }
  return result;
}

// The whole shape without zeros, for calls that mean nothing on empty tensors.
Shape PositiveShape(Case& c, int min_rank, int max_rank) {
  Shape shape;
  int64_t rank = c.Random(min_rank, max_rank);
  for (int64_t i = 0; i < rank; ++i) shape.push_back(c.Extent(1, 5));
  return shape;
}

void View(Case& c) {
  // Strides without a pattern, which data decides, may allow a view by chance; the rule says no.
  Self(c, 0, c.variant() == Variant::kData ? LayoutChoice::kRegular : LayoutChoice::kAny);
  c.Ints(Regrouped(c, SelfSizes(c)));
}
Conform kView({"aten::view", "aten::_unsafe_view", "aten::view_copy"}, View);
Conform kViewDense({"aten::view", "aten::_unsafe_view"}, [](Case& c) {
  Self(c, 0, LayoutChoice::kContiguous);
  c.Ints(Regrouped(c, SelfSizes(c)));
});
Conform kViewPermuted("aten::view", [](Case& c) {
  Self(c, 2, LayoutChoice::kDense);
  c.Ints(Regrouped(c, SelfSizes(c)));
});
Conform kReshape("aten::reshape", [](Case& c) {
  View(c);
  c.IgnoreAliasing();  // whether it copies depends on the layout
});

Conform kViewDType({"aten::view.dtype", "aten::view_copy.dtype"}, [](Case& c) {
  // Where the tensor begins in its storage matters too, but types do not show it: it begins at 0
  // here.
  auto layout = c.Chance(0.7) ? LayoutChoice::kContiguous : LayoutChoice::kDense;
  Shape shape = c.RandomShape(0, 3);
  // Viewing as a wider dtype needs a last size that allows it.
  if (!shape.empty() && c.Chance(0.6)) shape.back() *= c.Pick({2, 4, 8});
  c.Tensor(c.Pick(kAllTypes), shape, {.layout = layout});
  c.Arg(c.Pick(kAllTypes));
  c.AllowPinned();  // to a multiple of the ratio of element sizes, which may be all a symbol can be
});

Conform kReshapeAlias({"aten::_reshape_alias", "aten::_reshape_alias_copy"}, [](Case& c) {
  Self(c, 0, LayoutChoice::kContiguous);
  const TensorType self = c.operand_type(0);
  c.Ints(self.sizes).Ints(self.strides);
});
Conform kAsStrided({"aten::as_strided", "aten::as_strided_copy"}, [](Case& c) {
  c.Tensor(c.Pick(kAllTypes), PositiveShape(c, 2, 4), {.layout = LayoutChoice::kContiguous});
  const TensorType self = c.operand_type(0);
  // One row of the tensor, or all of it transposed.
  if (c.Chance()) {
    c.Ints({self.sizes[0]}).Ints({self.strides[0]});
  } else {
    c.Ints({self.sizes[1], self.sizes[0]}).Ints({self.strides[1], self.strides[0]});
  }
  if (c.Chance()) c.Int(0);
});

Conform kT({"aten::t", "aten::t_copy"},
           [](Case& c) { c.Tensor(c.Pick(kAllTypes), c.RandomShape(0, 2)); });
Conform kTranspose({"aten::transpose.int", "aten::transpose_copy.int"}, [](Case& c) {
  Self(c);
  OneDim(OneDim(c));
});
Conform kPermute({"aten::permute", "aten::permute_copy"}, [](Case& c) {
  Self(c);
  c.Ints(c.RandomDims(SelfRank(c), SelfRank(c)));
});

Conform kExpand({"aten::expand", "aten::expand_copy"}, [](Case& c) {
  Shape target = c.RandomShape(0, 4);
  Shape sizes = c.BroadcastOperand(target);
  size_t added = target.size() - sizes.size();
  for (size_t i = added; i < target.size(); ++i) {
    if (!sizes[i - added].Is(1) && c.Chance(0.2)) target[i] = -1;
  }
  c.Tensor(c.Pick(kAllTypes), sizes).Ints(target);
});

Conform kUnsqueeze({"aten::unsqueeze", "aten::unsqueeze_copy"}, [](Case& c) {
  Self(c);
  c.Int(c.RandomDim(SelfRank(c) + 1));
});
// Whether a dimension is removed must be known, so it cannot depend on data.
constexpr ConformOptions kNoData = {.data_variant = false};
Conform kSqueeze(
    {"aten::squeeze", "aten::squeeze_copy"}, [](Case& c) { Self(c); }, kNoData);
Conform kSqueezeDim(
    {"aten::squeeze.dim", "aten::squeeze_copy.dim"},
    [](Case& c) {
      Self(c);
      OneDim(c);
    },
    kNoData);
Conform kSqueezeDims(
    {"aten::squeeze.dims", "aten::squeeze_copy.dims"},
    [](Case& c) {
      Self(c);
      c.Ints(c.RandomDims(SelfRank(c)));
    },
    kNoData);

// A position along a dimension: a number from beyond either end, or relative to the size.
Dim Position(Case& c, const Dim& size) {
  if (c.Chance(0.2) && c.variant() != Variant::kStatic) return size - Dim(c.Random(0, 1));
  return c.Random(-6, 6);
}
void SliceArgs(Case& c) {
  Dim dim = c.RandomDim(SelfRank(c));
  int64_t front = (*dim.as_const() + SelfRank(c)) % SelfRank(c);
  const Dim size = SelfSizes(c)[static_cast<size_t>(front)];
  c.Int(dim);
  c.Chance(0.3) ? c.None() : c.Int(Position(c, size));
  c.Chance(0.3) ? (c.Chance() ? c.None() : c.Int(INT64_MAX)) : c.Int(Position(c, size));
  c.Int(c.Chance(0.6) ? 1 : c.Random(1, 3));
}
Conform kSlice({"aten::slice.Tensor", "aten::slice_copy.Tensor"}, [](Case& c) {
  Self(c, 1);
  SliceArgs(c);
});

void SelectArgs(Case& c) {
  Dim dim = c.RandomDim(SelfRank(c));
  int64_t front = (*dim.as_const() + SelfRank(c)) % SelfRank(c);
  int64_t size = c.Drawn(SelfSizes(c)[static_cast<size_t>(front)]);
  c.Int(dim).Int(c.Random(-size, std::max<int64_t>(size - 1, -size)));
}
Shape SelectableShape(Case& c) {
  Shape shape;
  int64_t rank = c.Random(1, 4);
  // Symbols are at least 5, so that the index drawn stays inside at other extents.
  for (int64_t i = 0; i < rank; ++i)
    shape.push_back(c.Chance() ? c.Extent(5, 6) : Dim(c.Random(0, 4)));
  return shape;
}
Conform kSelect({"aten::select.int", "aten::select_copy.int"}, [](Case& c) {
  c.Tensor(c.Pick(kAllTypes), SelectableShape(c));
  SelectArgs(c);
});

Conform kSplit(
    {"aten::split.Tensor", "aten::split_copy.Tensor"},
    [](Case& c) {
      Self(c, 1);
      Dim dim = c.RandomDim(SelfRank(c));
      int64_t front = (*dim.as_const() + SelfRank(c)) % SelfRank(c);
      const Dim size = SelfSizes(c)[static_cast<size_t>(front)];
      // In halves, so that the number of parts stays; or of a fixed size, which pins a symbolic
      // extent to a range.
      bool halves = !size.is_const();
      c.Int(halves ? (c.Chance() ? size : CeilDiv(size, 2)) : Dim(c.Random(0, 4))).Int(dim);
      c.AllowPinned();  // the number of parts is fixed, which need not fix the size
    },
    {.data_variant = false});  // the number of parts must be known

Conform kSplitWithSizes({"aten::split_with_sizes", "aten::split_with_sizes_copy"}, [](Case& c) {
  int64_t rank = c.Random(1, 4), dim = c.Random(0, rank - 1);
  Shape sizes = c.RandomShape(static_cast<int>(rank), static_cast<int>(rank)), parts;
  Dim sum = 0;
  int64_t count = c.Random(1, 3);
  for (int64_t i = 0; i < count; ++i) {
    parts.push_back(c.Extent());
    sum += parts.back();
  }
  sizes[static_cast<size_t>(dim)] = sum;
  c.Tensor(c.Pick(kAllTypes), sizes).Ints(parts).Int(c.Chance() ? dim : dim - rank);
});

Conform kUnbind({"aten::unbind.int", "aten::unbind_copy.int"}, [](Case& c) {
  int64_t rank = c.Random(1, 4), dim = c.Random(0, rank - 1);
  Shape sizes = c.RandomShape(static_cast<int>(rank), static_cast<int>(rank));
  sizes[static_cast<size_t>(dim)] = c.Random(0, 4);
  c.Tensor(c.Pick(kAllTypes), sizes).Int(c.Chance() ? dim : dim - rank);
});

Conform kSame({"aten::alias", "aten::alias_copy", "aten::detach", "aten::detach_copy"},
              [](Case& c) { Self(c); });
Conform kConj({"aten::_conj", "aten::_conj_copy"}, [](Case& c) {
  c.Tensor(c.Pick({DType::kComplex64, DType::kComplex128}), c.RandomShape(0, 4));
});
Conform kNegView("aten::_neg_view",
                 [](Case& c) { c.Tensor(c.Pick(kRealTypes), c.RandomShape(0, 4)); });

void TwoDims(Case& c) {
  Shape dims = c.RandomDims(SelfRank(c), 2);
  c.Int(dims[0]).Int(dims[1]);
}
Conform kDiagonal({"aten::diagonal", "aten::diagonal_copy"},
                  [](Case& c) {
                    Self(c, 2);
                    c.Int(c.Random(-3, 3));
                    TwoDims(c);
                    c.AllowPinned();
                  },
                  {.data_variant = false});  // an empty diagonal begins where the tensor does:
                                             // whether it is empty must be known

Conform kUnfold({"aten::unfold", "aten::unfold_copy"},
                [](Case& c) {
                  Self(c);
                  Dim dim = c.RandomDim(SelfRank(c));
                  int64_t rank = std::max<int64_t>(SelfRank(c), 1),
                          front = (*dim.as_const() + rank) % rank;
                  int64_t size =
                      SelfRank(c) == 0 ? 1 : c.Drawn(SelfSizes(c)[static_cast<size_t>(front)]);
                  c.Int(dim).Int(c.Random(0, size)).Int(c.Random(1, 3));
                },
                {.data_variant = false});  // whether the window fits must be known

Conform kViewAsReal({"aten::view_as_real", "aten::view_as_real_copy"}, [](Case& c) {
  c.Tensor(c.Pick({DType::kComplex64, DType::kComplex128}), c.RandomShape(0, 4));
});
Conform kViewAsComplex({"aten::view_as_complex", "aten::view_as_complex_copy"}, [](Case& c) {
  Shape sizes = c.RandomShape(0, 3);
  sizes.emplace_back(2);
  DType dtype = c.Pick({DType::kFloat32, DType::kFloat64});
  if (c.Chance()) {
    c.Tensor(dtype, sizes, {.layout = LayoutChoice::kDense});
    c.AllowPinned();  // the last stride must be 1
    return;
  }
  // Pairs inside longer rows. Rows of odd length are rejected by both, unless there is only one.
  Shape memory = sizes;
  memory.back() += c.Random(0, 3);
  c.Tensor({dtype, {}, sizes, ContiguousStrides(memory, c.env())}, 0, Product(memory));
});

// Gradients of views: the base's sizes are given, the gradient has the view's.
Conform kSliceBackward("aten::slice_backward", [](Case& c) {
  Shape sizes = PositiveShape(c, 1, 4);
  auto dim = static_cast<size_t>(c.Random(0, static_cast<int64_t>(sizes.size()) - 1));
  Shape grad = sizes;
  sizes[dim] = grad[dim] + Dim(3);
  c.Tensor(c.Pick(kRealTypes), grad).Ints(sizes).Int(static_cast<int64_t>(dim));
  c.Int(1).Int(sizes[dim] - Dim(2)).Int(1);
});
Conform kSelectBackward("aten::select_backward", [](Case& c) {
  Shape sizes = PositiveShape(c, 1, 4);
  auto dim = c.Random(0, static_cast<int64_t>(sizes.size()) - 1);
  Shape grad = sizes;
  grad.erase(grad.begin() + dim);
  c.Tensor(c.Pick(kRealTypes), grad).Ints(sizes).Int(dim).Int(0);
});
Conform kDiagonalBackward("aten::diagonal_backward", [](Case& c) {
  Dim size = c.Extent(1, 5);
  Shape sizes = {c.Extent(), size, size};
  c.Tensor(c.Pick(kRealTypes), {sizes[0], size}).Ints(sizes).Int(0).Int(1).Int(2);
});
Conform kUnfoldBackward("aten::unfold_backward", [](Case& c) {
  Dim windows = c.Extent(1, 4), rows = c.Extent();
  c.Tensor(c.Pick(kRealTypes), {rows, windows, 2}).Ints({rows, windows * Dim(2)});
  c.Int(1).Int(2).Int(2);
});

// A view of the base replaced by other values.
Conform kSliceScatter("aten::slice_scatter", [](Case& c) {
  Shape sizes = PositiveShape(c, 1, 4), replaced = sizes;
  auto dim = static_cast<size_t>(c.Random(0, static_cast<int64_t>(sizes.size()) - 1));
  sizes[dim] += 2;
  DType dtype = c.Pick(kAllTypes);
  c.Tensor(dtype, sizes).Tensor(dtype, c.MustEqual(replaced));
  c.Int(static_cast<int64_t>(dim)).Int(1).Int(c.Chance() ? Dim(-1) : replaced[dim] + Dim(1));
});
Conform kSelectScatter("aten::select_scatter", [](Case& c) {
  Shape sizes = PositiveShape(c, 1, 4), replaced = sizes;
  auto dim = c.Random(0, static_cast<int64_t>(sizes.size()) - 1);
  replaced.erase(replaced.begin() + dim);
  DType dtype = c.Pick(kAllTypes);
  c.Tensor(dtype, sizes).Tensor(dtype, c.MustEqual(replaced)).Int(dim).Int(c.Pick({0, -1}));
});
Conform kDiagonalScatter("aten::diagonal_scatter", [](Case& c) {
  Dim size = c.Extent(1, 5), batch = c.Extent();
  DType dtype = c.Pick(kAllTypes);
  c.Tensor(dtype, {batch, size, size}).Tensor(dtype, {batch, size}).Int(0).Int(1).Int(2);
});
Conform kAsStridedScatter("aten::as_strided_scatter", [](Case& c) {
  Shape sizes = PositiveShape(c, 2, 2);
  DType dtype = c.Pick(kAllTypes);
  c.Tensor(dtype, sizes, {.layout = LayoutChoice::kContiguous}).Tensor(dtype, {sizes[0]});
  c.Ints({sizes[0]}).Ints({c.operand_type(0).strides[0]});
});

}  // namespace
}  // namespace gt::conformance::views_test
