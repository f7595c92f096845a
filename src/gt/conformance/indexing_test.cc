// Cases of ops/indexing.cc.
#include <gtest/gtest.h>

#include "gt/conformance/harness.h"

namespace gt::conformance::indexing_test {
namespace {

constexpr DType kIndexTypes[] = {DType::kInt64, DType::kInt32};

Shape PositiveShape(Case& c, int64_t min_rank, int64_t max_rank) {
  Shape shape;
  int64_t rank = c.Random(min_rank, max_rank);
  for (int64_t i = 0; i < rank; ++i) shape.push_back(c.Extent(1, 5));
  return shape;
}

// Positions within [0, bound): 0 where the bound is not a number, so that they exist at other
// extents too.
TensorOptions Positions(const Dim& bound) { return {.fill = Fill::kIndex, .bound = bound}; }

Conform kEmbedding("aten::embedding", [](Case& c) {
  Dim rows = c.Extent(1, 5);
  c.Tensor(c.Pick(kRealTypes), {rows, c.Extent()});
  c.Tensor(c.Pick(kIndexTypes), c.RandomShape(0, 3), Positions(rows));
});
Conform kEmbeddingBackward("aten::embedding_dense_backward", [](Case& c) {
  Dim rows = c.Extent(1, 5);
  Shape indices = PositiveShape(c, 0, 3), grad = indices;
  grad.push_back(c.Extent(1, 5));
  c.Tensor(c.Pick({DType::kFloat32, DType::kFloat64}), grad);
  c.Tensor(c.Pick(kIndexTypes), indices, Positions(rows));
  c.Int(rows).Int(-1).Bool(false);
});

// Index tensors that broadcast against each other, at some of the dimensions.
void IndexList(Case& c, const Shape& sizes) {
  Shape common = c.RandomShape(0, 2);
  bool any = false;
  c.TensorList([&](Case& list) {
    int64_t count = list.Random(1, static_cast<int64_t>(sizes.size()));
    for (int64_t d = 0; d < count; ++d) {
      if (list.Chance(0.35) && (any || d + 1 < count)) {
        list.None();
        continue;
      }
      any = true;
      list.Tensor(list.Pick(kIndexTypes), list.BroadcastOperand(common),
                  Positions(sizes[static_cast<size_t>(d)]));
    }
  });
}
Conform kIndex({"aten::index.Tensor", "aten::_unsafe_index.Tensor"}, [](Case& c) {
  Shape sizes = PositiveShape(c, 1, 4);
  c.Tensor(c.Pick(kAllTypes), sizes);
  IndexList(c, sizes);
});
// One index into rows or columns: what routing tokens to experts is made of.
Conform kIndexRows("aten::index.Tensor", [](Case& c) {
  Shape sizes = PositiveShape(c, 2, 3);
  c.Tensor(c.Pick(kRealTypes), sizes);
  bool rows = c.Chance();
  c.TensorList([&](Case& list) {
    if (!rows) list.None();
    list.Tensor(c.Pick(kIndexTypes), {c.Extent()}, Positions(sizes[rows ? 0 : 1]));
  });
});
Conform kIndexPut({"aten::index_put", "aten::_unsafe_index_put"}, [](Case& c) {
  Shape sizes = PositiveShape(c, 1, 4);
  DType dtype = c.Pick(kAllTypes);
  c.Tensor(dtype, sizes);
  IndexList(c, sizes);
  c.Tensor(dtype, {}).Bool(dtype != DType::kBool && c.Chance());
});
Conform kIndexPutMask("aten::index_put", [](Case& c) {
  Shape sizes = PositiveShape(c, 1, 3);
  DType dtype = c.Pick(kAllTypes);
  c.Tensor(dtype, sizes);
  c.TensorList([&](Case& list) { list.Tensor(DType::kBool, sizes); });
  c.Tensor(dtype, {});
});

// Sizes, a dimension of them spelled either way, and its position from the front.
struct Along {
  Shape sizes;
  Dim dim;
  size_t at;
};
Along RandomAlong(Case& c, int64_t min_rank = 1) {
  Along along;
  along.sizes = PositiveShape(c, min_rank, 4);
  auto rank = static_cast<int64_t>(along.sizes.size());
  along.dim = c.RandomDim(rank);
  along.at = rank == 0 ? 0 : static_cast<size_t>((*along.dim.as_const() + rank) % rank);
  return along;
}

Conform kIndexSelect("aten::index_select", [](Case& c) {
  Along along = RandomAlong(c, 0);
  c.Tensor(c.Pick(kAllTypes), along.sizes).Int(along.dim);
  Shape index;
  if (!along.sizes.empty() && c.Chance(0.85)) index.push_back(c.Extent());
  c.Tensor(c.Pick(kIndexTypes), index,
           Positions(along.sizes.empty() ? Dim(1) : along.sizes[along.at]));
});
// The index holds each position once, or the order of writes would decide what index_copy gives.
void IndexedSource(Case& c) {
  Along along = RandomAlong(c);
  DType dtype = c.Pick(kNumberTypes);
  c.Tensor(dtype, along.sizes).Int(along.dim);
  Dim count = c.Extent(1, 5);
  c.Tensor(DType::kInt64, {count}, Positions(along.sizes[along.at]));
  Shape source = along.sizes;
  source[along.at] = c.MustEqual(count);
  c.Tensor(dtype, source);
}
Conform kIndexAdd({"aten::index_add", "aten::index_copy"}, IndexedSource);
Conform kIndexFill("aten::index_fill.int_Scalar", [](Case& c) {
  Along along = RandomAlong(c);
  c.Tensor(c.Pick(kNumberTypes), along.sizes).Int(along.dim);
  c.Tensor(DType::kInt64, {c.Extent()}, Positions(along.sizes[along.at])).Int(1);
});
Conform kIndexFillTensor("aten::index_fill.int_Tensor", [](Case& c) {
  Along along = RandomAlong(c);
  DType dtype = c.Pick(kNumberTypes);
  c.Tensor(dtype, along.sizes).Int(along.dim);
  c.Tensor(DType::kInt64, {c.Extent()}, Positions(along.sizes[along.at])).Tensor(dtype, {});
});

Conform kGather("aten::gather", [](Case& c) {
  Along along = RandomAlong(c);
  c.Tensor(c.Pick(kAllTypes), along.sizes).Int(along.dim);
  Shape index = along.sizes;
  index[along.at] = c.Extent();
  c.Tensor(DType::kInt64, index, Positions(along.sizes[along.at]));
});
void ScatteredInto(Case& c, DType dtype) {
  Along along = RandomAlong(c);
  c.Tensor(dtype, along.sizes).Int(along.dim);
  // As long as self along the dimension: a shorter one would be fine as well.
  c.Tensor(DType::kInt64, along.sizes, Positions(along.sizes[along.at]));
}
Conform kScatter({"aten::scatter.src", "aten::scatter_add"}, [](Case& c) {
  DType dtype = c.Pick(kNumberTypes);
  ScatteredInto(c, dtype);
  const Shape index = c.operand_type(1).sizes;
  c.Tensor(dtype, index);
});
Conform kScatterValue("aten::scatter.value", [](Case& c) {
  ScatteredInto(c, c.Pick(kNumberTypes));
  c.Int(1);
});
Conform kScatterReduce("aten::scatter_reduce.two", [](Case& c) {
  DType dtype = c.Pick({DType::kFloat32, DType::kInt64});
  ScatteredInto(c, dtype);
  const Shape index = c.operand_type(1).sizes;
  c.Tensor(dtype, index).Arg(std::string(c.Pick({"sum", "prod", "amax", "amin"}))).Bool(c.Chance());
});

Conform kTake("aten::take", [](Case& c) {
  c.Tensor(c.Pick(kAllTypes), PositiveShape(c, 0, 3));
  c.Tensor(DType::kInt64, c.RandomShape(0, 3), Positions(1));
});
Conform kPut("aten::put", [](Case& c) {
  DType dtype = c.Pick(kNumberTypes);
  c.Tensor(dtype, PositiveShape(c, 1, 3));
  Shape index = c.RandomShape(0, 3);
  c.Tensor(DType::kInt64, index, Positions(1)).Tensor(dtype, index).Bool(c.Chance());
});
Conform kMaskedScatter("aten::masked_scatter", [](Case& c) {
  Shape sizes = c.RandomShape(0, 3);
  DType dtype = c.Pick(kAllTypes);
  c.Tensor(dtype, sizes).Tensor(DType::kBool, c.BroadcastOperand(sizes));
  // The source must have an element for each that the mask selects.
  c.Tensor(dtype, sizes);
});

void Joined(Case& c, int64_t rank, bool promote) {
  Shape sizes = c.RandomShape(static_cast<int>(rank), static_cast<int>(rank));
  int64_t dim = c.Random(0, rank - 1);
  DType dtype = c.Pick(kAllTypes);
  LayoutChoice layout = c.Pick({LayoutChoice::kAny, LayoutChoice::kDense});
  c.TensorList([&](Case& list) {
    int64_t count = list.Random(1, 4);
    for (int64_t i = 0; i < count; ++i) {
      Shape part = list.MustEqual(sizes);
      part[static_cast<size_t>(dim)] = list.Extent();
      list.Tensor(promote ? list.Pick(kAllTypes) : dtype, part, {.layout = layout});
    }
  });
  c.Int(c.Chance() ? dim : dim - rank);
}
Conform kCat("aten::cat", [](Case& c) { Joined(c, c.Random(1, 5), c.Chance(0.3)); });
// An empty vector may be among tensors of any rank.
Conform kCatEmpty("aten::cat", [](Case& c) {
  Shape sizes = c.RandomShape(2, 4);
  DType dtype = c.Pick(kAllTypes);
  bool first = c.Chance();
  c.TensorList([&](Case& list) {
    if (first) list.Tensor(dtype, {Dim(0)});
    list.Tensor(dtype, sizes).Tensor(dtype, sizes);
    if (!first) list.Tensor(dtype, {Dim(0)});
  });
  c.Int(c.Random(0, 1));
});
// Tensors that have dimension 1 innermost look like images to libtorch, and the result is laid out
// like them.
void ImageLike(Case& c, DType dtype, const Shape& sizes) {
  Shape inner = {sizes[0], sizes[2], sizes[3], sizes[1]};
  Shape strides = ContiguousStrides(inner, c.env());
  TensorType type{dtype, {}, sizes, {strides[0], strides[3], strides[1], strides[2]}};
  c.Tensor(type, 0, Product(sizes));
}
Conform kCatImages("aten::cat", [](Case& c) {
  Shape sizes = c.RandomShape(4, 4);
  c.TensorList([&](Case& list) {
    ImageLike(list, DType::kFloat32, sizes);
    if (list.Chance(0.7)) {
      ImageLike(list, DType::kFloat32, sizes);
    } else {
      list.Tensor(DType::kFloat32, sizes);
    }
  });
  c.Int(c.Random(0, 3));
});
Conform kStack("aten::stack", [](Case& c) {
  Shape sizes = c.RandomShape(0, 4);
  DType dtype = c.Pick(kAllTypes);
  bool promote = c.Chance(0.2);
  c.TensorList([&](Case& list) {
    int64_t count = list.Random(1, 4);
    for (int64_t i = 0; i < count; ++i) {
      list.Tensor(promote ? list.Pick(kAllTypes) : dtype, list.MustEqual(sizes));
    }
  });
  c.Int(c.RandomDim(static_cast<int64_t>(sizes.size()) + 1));
});

Conform kPad("aten::constant_pad_nd", [](Case& c) {
  Shape sizes, pad;
  int64_t rank = c.Random(1, 4), padded = c.Random(0, rank);
  for (int64_t i = 0; i < rank; ++i) sizes.push_back(c.Extent(2, 5));
  bool cuts = c.Chance(0.3);
  for (int64_t i = 0; i < 2 * padded; ++i)
    pad.emplace_back(cuts ? c.Random(-1, 0) : c.Random(-1, 3));
  if (rank == 4 && c.Chance(0.3)) {
    ImageLike(c, DType::kFloat32, sizes);
  } else {
    c.Tensor(c.Pick(kAllTypes), sizes);
  }
  c.Ints(pad);
  c.AllowPinned();  // a size cut down to one leaves its mark on the layout
});
Conform kRepeat("aten::repeat", [](Case& c) {
  Shape sizes = c.RandomShape(0, 3), repeats;
  int64_t count = static_cast<int64_t>(sizes.size()) + c.Random(0, 2);
  for (int64_t i = 0; i < count; ++i) repeats.push_back(c.Extent(0, 3));
  c.Tensor(c.Pick(kAllTypes), sizes).Ints(repeats);
});
Conform kRepeatInterleave("aten::repeat_interleave.Tensor", [](Case& c) {
  Dim count = c.Extent();
  c.Tensor(c.Pick(kIndexTypes), {count}, {.fill = Fill::kSame, .bound = 3}).Int(count * Dim(3));
});
Conform kRoll("aten::roll", [](Case& c) {
  Shape sizes = c.RandomShape(0, 4);
  auto rank = static_cast<int64_t>(sizes.size());
  // Of images the layout depends on whether a part is empty, which data would decide.
  if (rank == 4 && c.variant() != Variant::kData && c.Chance(0.3)) {
    ImageLike(c, DType::kFloat32, sizes);
  } else {
    auto layout = c.variant() == Variant::kData ? LayoutChoice::kContiguous : LayoutChoice::kAny;
    c.Tensor(c.Pick(kAllTypes), sizes, {.layout = layout});
  }
  Shape dims = rank == 0 ? Shape() : c.RandomDims(rank), shifts;
  for (size_t i = 0; i < std::max<size_t>(dims.size(), 1); ++i)
    shifts.emplace_back(c.Random(-6, 6));
  c.Ints(shifts).Ints(dims);
  c.AllowPinned();  // likewise, where a part has size one
});
Conform kFlip("aten::flip", [](Case& c) {
  Shape sizes = c.RandomShape(0, 4);
  c.Tensor(c.Pick(kAllTypes), sizes).Ints(c.RandomDims(static_cast<int64_t>(sizes.size())));
});

Conform kSearchSorted("aten::searchsorted.Tensor", [](Case& c) {
  Shape values = c.RandomShape(1, 3);
  Shape sorted = c.Chance() ? Shape{} : values;
  if (sorted.empty()) {
    sorted.push_back(c.Extent());
  } else {
    sorted = c.MustEqual(sorted);
    sorted.back() = c.Extent();
  }
  DType dtype = c.Pick({DType::kFloat32, DType::kInt64});
  c.Tensor(dtype, sorted, {.fill = Fill::kSame}).Tensor(dtype, values).Bool(c.Chance());
});
Conform kBucketize("aten::bucketize.Tensor", [](Case& c) {
  DType dtype = c.Pick({DType::kFloat32, DType::kInt64});
  c.Tensor(dtype, c.RandomShape(0, 3)).Tensor(dtype, {c.Extent()}, {.fill = Fill::kSame});
  c.Bool(c.Chance());
});
Conform kHistc("aten::histc", [](Case& c) {
  c.Tensor(c.Pick({DType::kFloat32, DType::kFloat64}), PositiveShape(c, 0, 3));
  c.Int(c.Random(1, 9)).Int(0).Int(4);
});

// What libtorch 2.11.0 answers on an H200, where index tensors of unlike layout are made contiguous
// first.
TEST(RecordedConformance, IndexOnCuda) {
  const Device cuda{DeviceKind::kCuda, 0};
  const TensorType self{DType::kFloat32, cuda, {4, 5, 6, 7}, {210, 42, 7, 1}};
  const TensorType reversed{DType::kFloat32, cuda, {7, 6, 5, 4}, {1, 7, 42, 210}};
  const TensorType i{DType::kInt64, cuda, {3, 1}, {1, 1}}, j{DType::kInt64, cuda, {2}, {1}};
  const TensorType wide{DType::kInt64, cuda, {2, 3}, {0, 1}},
      plain{DType::kInt64, cuda, {2, 3}, {3, 1}};
  struct Recorded {
    std::vector<const TensorType*> operands;
    OperandList indices;
    Shape sizes, strides;
  };
  const Recorded calls[] = {
      {{&self, &i, &j}, {{1, -1, 2}}, {3, 2, 5, 7}, {70, 35, 7, 1}},
      {{&reversed, &i, &j}, {{-1, 1, 2}}, {7, 3, 2, 4}, {1, 14, 7, 42}},
      {{&reversed, &i}, {{-1, 1}}, {7, 3, 1, 5, 4}, {1, 35, 35, 7, 105}},
      {{&reversed, &wide, &plain}, {{-1, 1, 2}}, {7, 2, 3, 4}, {1, 21, 7, 42}},
  };
  for (const Recorded& call : calls) {
    ShapeEnv env;
    Argument args[] = {OperandRef{0}, call.indices};
    RuleContext ctx(*FindOperator("aten::index.Tensor"), args, call.operands, env);
    ctx.op().rule(ctx);
    EXPECT_EQ(ctx.results()[0], (TensorType{DType::kFloat32, cuda, call.sizes, call.strides}));
  }
}

}  // namespace
}  // namespace gt::conformance::indexing_test
