#include "gt/ops/index_sharding.h"

#include <algorithm>

#include "gt/ops/sharding_rules.h"

namespace gt::rules {
namespace {

ShardState AsState(int64_t dim) { return static_cast<ShardState>(dim); }

int64_t SizeAt(const ShardingContext& ctx, const TensorType& type, int64_t dim) {
  return ctx.SizeOf(type.sizes[static_cast<size_t>(dim)]);
}

}  // namespace

// (weight, indices, ...). Rows of the weight: an index that is in another rank's rows gives zeros,
// so that the ranks' results add up.
void EmbeddingSharding(ShardingContext& ctx) {
  const int64_t width = TensorAt(ctx, 1).rank();
  RowMaker(ctx).Arg(0, 1).Result(0, AsState(width)).Add();
  for (int64_t d = 0; d < width; ++d) RowMaker(ctx).Arg(1, AsState(d)).Result(0, AsState(d)).Add();
  RowMaker(ctx).Arg(0, 0).Result(0, kPartial).Method(ShardMethod::kMaskedIndices).Add();
  AddLinearRow(ctx, {0});
}

// (grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
void EmbeddingBackwardSharding(ShardingContext& ctx) {
  const int64_t width = TensorAt(ctx, 1).rank();
  RowMaker(ctx).Arg(0, AsState(width)).Result(0, 1).Add();
  AddLinearRow(ctx, {0});
  // How often an index occurs is a count over all of them.
  if (BoolAt(ctx, 4)) return;
  for (int64_t d = 0; d < width; ++d) {
    RowMaker(ctx).Arg(0, AsState(d)).Arg(1, AsState(d)).Result(0, kPartial).Add();
  }
  // A row that gets no gradient would be another one in each shard.
  if (IntAt(ctx, 3) >= 0) return;
  RowMaker(ctx).Result(0, 0).Method(ShardMethod::kMaskedIndices).Add();
}

namespace {

// What indexing by tensors does to dimensions (see AdvancedIndex in indexing.cc).
struct IndexedDims {
  std::vector<int> indices;      // operands, in order
  std::vector<int64_t> dims;     // of self that they index
  std::vector<int64_t> kept_at;  // where each dimension of self is in what is selected, or -1
  int64_t indices_at = 0;        // where the dimensions of the indices begin there
  Shape selected;                // sizes of what is selected
  Shape shape;                   // of the indices, broadcast
  bool masked = false;           // by booleans: how many elements is not known
};

Shape BroadcastShape(const ShardingContext& ctx, const std::vector<int>& indices) {
  Shape shape;
  for (int index : indices) {
    const Shape& sizes = ctx.operands()[static_cast<size_t>(index)]->sizes;
    if (sizes.size() > shape.size()) shape.insert(shape.begin(), sizes.size() - shape.size(), 1);
    const size_t missing = shape.size() - sizes.size();
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (ctx.SizeOf(shape[missing + d]) == 1) shape[missing + d] = sizes[d];
    }
  }
  return shape;
}

IndexedDims DimsOf(const ShardingContext& ctx) {
  IndexedDims result;
  const TensorType& self = TensorAt(ctx, 0);
  const std::vector<int> given = ListAt(ctx, 1);
  for (size_t d = 0; d < given.size(); ++d) {
    if (given[d] < 0) continue;
    const DType dtype = ctx.operands()[static_cast<size_t>(given[d])]->dtype;
    result.masked |= dtype == DType::kBool || dtype == DType::kUInt8;
    result.indices.push_back(given[d]);
    result.dims.push_back(static_cast<int64_t>(d));
  }
  if (result.masked || result.dims.empty()) return result;
  result.shape = BroadcastShape(ctx, result.indices);
  const bool together = result.dims.back() - result.dims.front() + 1 == std::ssize(result.dims);
  result.indices_at = together ? result.dims.front() : 0;
  for (int64_t d = 0; d < self.rank(); ++d) {
    if (std::find(result.dims.begin(), result.dims.end(), d) != result.dims.end()) {
      result.kept_at.push_back(-1);
      continue;
    }
    const auto before = std::ssize(result.selected);
    const int64_t shift = before >= result.indices_at ? std::ssize(result.shape) : 0;
    result.kept_at.push_back(before + shift);
    result.selected.push_back(self.sizes[static_cast<size_t>(d)]);
  }
  result.selected.insert(result.selected.begin() + result.indices_at, result.shape.begin(),
                         result.shape.end());
  return result;
}

// The indices when dimension d of their common shape is cut.
void CutIndices(ShardingContext& ctx, const IndexedDims& dims, size_t d, RowMaker& row) {
  for (int index : dims.indices) {
    const auto state =
        BroadcastState(ctx, *ctx.operands()[static_cast<size_t>(index)], dims.shape, d);
    if (!state) row.Void();
    row.Operand(index, state.value_or(kWhole));
  }
}

}  // namespace

// (self, indices)
void IndexSharding(ShardingContext& ctx) {
  const IndexedDims dims = DimsOf(ctx);
  if (dims.masked) return;
  for (size_t d = 0; d < dims.kept_at.size(); ++d) {
    if (dims.kept_at[d] < 0) continue;
    RowMaker(ctx)
        .Arg(0, AsState(static_cast<int64_t>(d)))
        .Result(0, AsState(dims.kept_at[d]))
        .Add();
  }
  for (size_t d = 0; d < dims.shape.size(); ++d) {
    RowMaker row(ctx);
    row.Arg(0, kWhole);
    CutIndices(ctx, dims, d, row);
    row.Result(0, AsState(dims.indices_at + static_cast<int64_t>(d))).Add();
  }
  if (dims.indices.size() == 1) {
    RowMaker row(ctx);
    row.Arg(0, AsState(dims.dims[0])).Operand(dims.indices[0], kWhole);
    row.Result(0, kPartial).Method(ShardMethod::kMaskedIndices).Add();
  }
  AddLinearRow(ctx, {0});
}

// (self, indices, values, accumulate)
void IndexPutSharding(ShardingContext& ctx) {
  const IndexedDims dims = DimsOf(ctx);
  if (dims.masked) return;
  const TensorType& values = TensorAt(ctx, 2);
  const auto cut_values = [&](int64_t at, RowMaker& row) {
    const auto state = BroadcastState(ctx, values, dims.selected, static_cast<size_t>(at));
    if (!state) row.Void();
    row.Arg(2, state.value_or(kWhole));
  };
  for (size_t d = 0; d < dims.kept_at.size(); ++d) {
    if (dims.kept_at[d] < 0) continue;
    const ShardState state = AsState(static_cast<int64_t>(d));
    RowMaker row(ctx);
    row.Arg(0, state).Result(0, state);
    cut_values(dims.kept_at[d], row);
    row.Add();
  }
  AddLinearRow(ctx, {0, 2});
  // What is added may be added by different ranks.
  if (!BoolAt(ctx, 3)) return;
  for (size_t d = 0; d < dims.shape.size(); ++d) {
    RowMaker row(ctx);
    row.Arg(0, kPartial).Result(0, kPartial);
    CutIndices(ctx, dims, d, row);
    cut_values(dims.indices_at + static_cast<int64_t>(d), row);
    row.Add();
  }
}

namespace {

// Dimensions other than the one that is indexed, at the same place in everything of self's rank.
void AddUnindexed(ShardingContext& ctx, std::initializer_list<int> args) {
  const TensorType& self = TensorAt(ctx, 0);
  const int64_t dim = DimAt(ctx, 1, self.rank());
  for (int64_t d = 0; d < self.rank(); ++d) {
    if (d == dim) continue;
    RowMaker row(ctx);
    row.Arg(0, AsState(d)).Result(0, AsState(d));
    for (int arg : args) {
      const TensorType& type = TensorAt(ctx, arg);
      // An index that covers the first elements only would be cut elsewhere.
      if (type.rank() != self.rank() || SizeAt(ctx, type, d) != SizeAt(ctx, self, d)) row.Void();
      row.Arg(arg, AsState(d));
    }
    row.Add();
  }
}

// Self is cut along the dimension that is indexed.
void AddMaskedRow(ShardingContext& ctx, ShardState result) {
  RowMaker row(ctx);
  row.Arg(0, AsState(DimAt(ctx, 1, TensorAt(ctx, 0).rank()))).Arg(2, kWhole);
  row.Result(0, result).Method(ShardMethod::kMaskedIndices).Add();
}

ShardState IndexedDim(const ShardingContext& ctx) {
  return AsState(DimAt(ctx, 1, TensorAt(ctx, 0).rank()));
}

}  // namespace

// (self, dim, index)
void IndexSelectSharding(ShardingContext& ctx) {
  AddUnindexed(ctx, {});
  RowMaker(ctx).Arg(0, kWhole).Arg(2, 0).Result(0, IndexedDim(ctx)).Add();
  AddMaskedRow(ctx, kPartial);
  AddLinearRow(ctx, {0});
}

// (self, dim, index, source). What is added may be added by different ranks, and each row by the
// rank that has it.
void IndexAddSharding(ShardingContext& ctx) {
  AddUnindexed(ctx, {3});
  RowMaker(ctx).Arg(0, kPartial).Arg(2, 0).Arg(3, IndexedDim(ctx)).Result(0, kPartial).Add();
  AddMaskedRow(ctx, IndexedDim(ctx));
  AddLinearRow(ctx, {0, 3});
}

void IndexCopySharding(ShardingContext& ctx) {
  AddUnindexed(ctx, {3});
  AddLinearRow(ctx, {0, 3});
}

void IndexFillSharding(ShardingContext& ctx) { AddUnindexed(ctx, {}); }

// (self, index): self as a vector.
void TakeSharding(ShardingContext& ctx) {
  for (int64_t d = 0; d < TensorAt(ctx, 1).rank(); ++d) {
    RowMaker(ctx).Arg(0, kWhole).Arg(1, AsState(d)).Result(0, AsState(d)).Add();
  }
  AddLinearRow(ctx, {0});
}

// (self, dim, index)
void GatherSharding(ShardingContext& ctx) {
  AddUnindexed(ctx, {2});
  RowMaker(ctx).Arg(0, kWhole).Arg(2, IndexedDim(ctx)).Result(0, IndexedDim(ctx)).Add();
  AddMaskedRow(ctx, kPartial);
  AddLinearRow(ctx, {0});
}

// (self, dim, index, src)
void ScatterSharding(ShardingContext& ctx) {
  AddUnindexed(ctx, {2, 3});
  AddLinearRow(ctx, {0, 3});
}

void ScatterReduceSharding(ShardingContext& ctx) { AddUnindexed(ctx, {2, 3}); }

// What is written would be added once per rank, unless it is zero.
void ScatterValueSharding(ShardingContext& ctx) {
  AddUnindexed(ctx, {2});
  if (NumberAt(ctx, 3) == 0.0) AddLinearRow(ctx, {0});
}

// As index_add. Along other dimensions an index stands for its own position as well.
void ScatterAddSharding(ShardingContext& ctx) {
  ScatterSharding(ctx);
  const ShardState dim = IndexedDim(ctx);
  const TensorType &index = TensorAt(ctx, 2), &source = TensorAt(ctx, 3);
  if (dim < index.rank() && dim < source.rank() &&
      SizeAt(ctx, index, dim) == SizeAt(ctx, source, dim)) {
    RowMaker(ctx).Arg(0, kPartial).Arg(2, dim).Arg(3, dim).Result(0, kPartial).Add();
  }
  AddMaskedRow(ctx, dim);
}

// (self, bins, min, max): counts add up if all ranks have the same bins.
void HistcSharding(ShardingContext& ctx) {
  if (NumberAt(ctx, 2) == NumberAt(ctx, 3)) return;
  for (int64_t d = 0; d < TensorAt(ctx, 0).rank(); ++d) {
    RowMaker(ctx).Arg(0, AsState(d)).Result(0, kPartial).Add();
  }
}

// (sorted_sequence, self, ..., sorter): one sequence for all, or one for each row of values.
void SearchSortedSharding(ShardingContext& ctx) {
  const bool shared = TensorAt(ctx, 0).rank() == 1;
  const int64_t rank = TensorAt(ctx, 1).rank();
  for (int64_t d = 0; d < rank; ++d) {
    RowMaker row(ctx);
    row.Arg(1, AsState(d)).Result(0, AsState(d));
    const ShardState sequence = shared || d == rank - 1 ? kWhole : AsState(d);
    row.Arg(0, sequence).Arg(5, sequence).Add();
  }
}

// (self, boundaries)
void BucketizeSharding(ShardingContext& ctx) {
  for (int64_t d = 0; d < TensorAt(ctx, 0).rank(); ++d) {
    RowMaker(ctx).Arg(0, AsState(d)).Arg(1, kWhole).Result(0, AsState(d)).Add();
  }
}

}  // namespace gt::rules
