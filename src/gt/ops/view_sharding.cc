#include "gt/ops/view_sharding.h"

#include <algorithm>
#include <utility>

#include "gt/ops/sharding_rules.h"

namespace gt::rules {
namespace {

using DimMap = std::vector<int64_t>;  // result dimension of each operand dimension, or -1

DimMap Identity(int64_t rank) {
  DimMap map(static_cast<size_t>(rank));
  for (int64_t d = 0; d < rank; ++d) map[static_cast<size_t>(d)] = d;
  return map;
}

// Each dimension that is not among `gone` keeps its place among those that are left.
DimMap Without(int64_t rank, uint64_t gone) {
  DimMap map(static_cast<size_t>(rank), -1);
  int64_t at = 0;
  for (int64_t d = 0; d < rank; ++d) {
    if (!(gone >> d & 1)) map[static_cast<size_t>(d)] = at++;
  }
  return map;
}

// From a result with dimensions added to what it is made of, the other way round.
DimMap Inverse(const DimMap& map, int64_t rank) {
  DimMap inverse(static_cast<size_t>(rank), -1);
  for (size_t d = 0; d < map.size(); ++d) {
    if (map[d] >= 0) inverse[static_cast<size_t>(map[d])] = static_cast<int64_t>(d);
  }
  return inverse;
}

void AddLinearMap(ShardingContext& ctx, const DimMap& map) {
  AddMappedRows(ctx, map);
  AddLinearRow(ctx);
}

// self and src, which takes the place of a view of self; `map` says where dimensions of self are in
// src.
void AddScattered(ShardingContext& ctx, const DimMap& map) {
  for (size_t d = 0; d < map.size(); ++d) {
    if (map[d] < 0) continue;
    const auto state = static_cast<ShardState>(d);
    RowMaker(ctx).Arg(0, state).Arg(1, static_cast<ShardState>(map[d])).Result(0, state).Add();
  }
  AddLinearRow(ctx);
}

uint64_t Bit(int64_t dim) { return uint64_t{1} << dim; }
int64_t RankOf(const ShardingContext& ctx) { return ctx.operands()[0]->rank(); }
int64_t ResultRank(const ShardingContext& ctx) { return ctx.results()[0]->rank(); }

// The two dimensions of a diagonal are gone, and the diagonal is last.
template <int kArg>
uint64_t DiagonalDims(const ShardingContext& ctx, int64_t rank) {
  return Bit(DimAt(ctx, kArg, rank)) | Bit(DimAt(ctx, kArg + 1, rank));
}

// Takes dimensions of more than one element from both sides until the products are equal.
struct Sizes {
  std::vector<std::pair<int64_t, int64_t>> dims;  // dimension and its size
  size_t next = 0;
};

Sizes SizesOf(const ShardingContext& ctx, const TensorType& type) {
  Sizes sizes;
  for (int64_t d = 0; d < type.rank(); ++d) {
    const int64_t size = ctx.SizeOf(type.sizes[static_cast<size_t>(d)]);
    if (size != 1) sizes.dims.emplace_back(d, size);
  }
  return sizes;
}

}  // namespace

void RegroupSharding(ShardingContext& ctx) {
  AddLinearRow(ctx);
  Sizes from = SizesOf(ctx, *ctx.operands()[0]), to = SizesOf(ctx, *ctx.results()[0]);
  const auto is_empty = [](const auto& dim) { return dim.second == 0; };
  if (std::any_of(from.dims.begin(), from.dims.end(), is_empty)) return;
  while (from.next < from.dims.size() && to.next < to.dims.size()) {
    const auto [a, first] = from.dims[from.next++];
    const auto [b, second] = to.dims[to.next++];
    int64_t left = first, right = second;
    while (left != right) {
      Sizes& shorter = left < right ? from : to;
      (left < right ? left : right) *= shorter.dims[shorter.next++].second;
    }
    RowMaker row(ctx);
    row.Operand(0, static_cast<ShardState>(a)).Result(0, static_cast<ShardState>(b));
    row.Even(first != second).Add();
  }
}

void ReinterpretSharding(ShardingContext& ctx) {
  DimMap map = Identity(RankOf(ctx));
  const bool resized = ItemSize(ctx.operands()[0]->dtype) != ItemSize(ctx.results()[0]->dtype);
  if (resized && !map.empty()) map.back() = -1;
  AddMappedRows(ctx, map);
}

void TSharding(ShardingContext& ctx) {
  DimMap map = Identity(RankOf(ctx));
  std::reverse(map.begin(), map.end());
  AddLinearMap(ctx, map);
}

void TransposeSharding(ShardingContext& ctx) {
  const int64_t rank = RankOf(ctx);
  DimMap map = Identity(rank);
  if (rank > 0) {
    std::swap(map[static_cast<size_t>(DimAt(ctx, 1, rank))],
              map[static_cast<size_t>(DimAt(ctx, 2, rank))]);
  }
  AddLinearMap(ctx, map);
}

void PermuteSharding(ShardingContext& ctx) {
  const int64_t rank = RankOf(ctx);
  DimMap order;
  for (const Dim& dim : std::get<Shape>(ctx.arg(1))) {
    const int64_t d = ctx.SizeOf(dim);
    order.push_back(d < 0 ? d + rank : d);
  }
  AddLinearMap(ctx, Inverse(order, rank));
}

// A dimension that is repeated can be cut while its one element is everywhere.
void ExpandSharding(ShardingContext& ctx) { LinearSharding(ctx); }

void UnsqueezeSharding(ShardingContext& ctx) {
  const int64_t rank = ResultRank(ctx);
  AddLinearMap(ctx, Inverse(Without(rank, Bit(DimAt(ctx, 1, rank))), rank - 1));
}

// A dimension that may be removed and has several elements must not come down to one in a shard.
void SqueezeSharding(ShardingContext& ctx) {
  const TensorType& self = *ctx.operands()[0];
  uint64_t named = ~uint64_t{0};
  if (ctx.args().size() > 1) {
    named = std::holds_alternative<Dim>(ctx.arg(1)) ? Bit(DimAt(ctx, 1, self.rank()))
                                                    : DimBits(ctx, 1, self.rank(), false);
  }
  ShardState at = 0;
  for (int64_t d = 0; d < self.rank(); ++d) {
    const bool may_go = named >> d & 1;
    if (may_go && ctx.SizeOf(self.sizes[static_cast<size_t>(d)]) == 1) continue;
    RowMaker row(ctx);
    row.Operand(0, static_cast<ShardState>(d)).Result(0, at++).Multiple(may_go ? 2 : 1).Add();
  }
  AddLinearRow(ctx);
}

void SliceSharding(ShardingContext& ctx) {
  const int64_t rank = RankOf(ctx);
  const auto dim = static_cast<size_t>(DimAt(ctx, 1, rank));
  DimMap map = Identity(rank);
  // An end that is beyond a dimension is also beyond its shards.
  if (ctx.operands()[0]->sizes[dim] != ctx.results()[0]->sizes[dim]) map[dim] = -1;
  AddLinearMap(ctx, map);
}

void SelectSharding(ShardingContext& ctx) {
  const int64_t rank = RankOf(ctx);
  AddLinearMap(ctx, Without(rank, Bit(DimAt(ctx, 1, rank))));
}

// split, split_with_sizes
void SplitSharding(ShardingContext& ctx) {
  DimMap map = Identity(RankOf(ctx));
  map[static_cast<size_t>(DimAt(ctx, 2, RankOf(ctx)))] = -1;
  AddLinearMap(ctx, map);
}

void UnbindSharding(ShardingContext& ctx) { SelectSharding(ctx); }

void DiagonalSharding(ShardingContext& ctx) {
  const int64_t rank = RankOf(ctx);
  AddLinearMap(ctx, Without(rank, DiagonalDims<2>(ctx, rank)));
}

void UnfoldSharding(ShardingContext& ctx) {
  const int64_t rank = RankOf(ctx);
  DimMap map = Identity(rank);
  if (rank > 0) map[static_cast<size_t>(DimAt(ctx, 1, rank))] = -1;
  AddLinearMap(ctx, map);
}

void ComplexPartsSharding(ShardingContext& ctx) {
  DimMap map = Identity(RankOf(ctx));
  if (IsComplex(ctx.results()[0]->dtype)) map.back() = -1;
  AddLinearMap(ctx, map);
}

void SliceBackwardSharding(ShardingContext& ctx) {
  DimMap map = Identity(RankOf(ctx));
  map[static_cast<size_t>(DimAt(ctx, 2, RankOf(ctx)))] = -1;
  AddLinearMap(ctx, map);
}

void SelectBackwardSharding(ShardingContext& ctx) {
  const int64_t rank = ResultRank(ctx);
  AddLinearMap(ctx, Inverse(Without(rank, Bit(DimAt(ctx, 2, rank))), rank - 1));
}

void DiagonalBackwardSharding(ShardingContext& ctx) {
  const int64_t rank = ResultRank(ctx);
  AddLinearMap(ctx, Inverse(Without(rank, DiagonalDims<3>(ctx, rank)), rank - 1));
}

// The gradient has the windows last.
void UnfoldBackwardSharding(ShardingContext& ctx) {
  const int64_t rank = ResultRank(ctx);
  DimMap map = Identity(rank);
  if (rank > 0) map[static_cast<size_t>(DimAt(ctx, 2, rank))] = -1;
  AddLinearMap(ctx, map);
}

void SliceScatterSharding(ShardingContext& ctx) {
  DimMap map = Identity(RankOf(ctx));
  map[static_cast<size_t>(DimAt(ctx, 2, RankOf(ctx)))] = -1;
  AddScattered(ctx, map);
}

void SelectScatterSharding(ShardingContext& ctx) {
  const int64_t rank = RankOf(ctx);
  AddScattered(ctx, Without(rank, Bit(DimAt(ctx, 2, rank))));
}

void DiagonalScatterSharding(ShardingContext& ctx) {
  const int64_t rank = RankOf(ctx);
  AddScattered(ctx, Without(rank, DiagonalDims<3>(ctx, rank)));
}

// All dimensions but the one that tensors are joined along. An empty vector among tensors of more
// dimensions is skipped by the kernel, and whole.
void CatSharding(ShardingContext& ctx) {
  const int64_t rank = ResultRank(ctx);
  const int64_t dim = DimAt(ctx, 1, rank);
  for (int64_t d = 0; d < rank; ++d) {
    if (d == dim) continue;
    RowMaker row(ctx);
    for (int operand : ListAt(ctx, 0)) {
      const bool joined = ctx.operands()[static_cast<size_t>(operand)]->rank() == rank;
      row.Operand(operand, joined ? static_cast<ShardState>(d) : kWhole);
    }
    row.Result(0, static_cast<ShardState>(d)).Add();
  }
  AddLinearRow(ctx);
}

void StackSharding(ShardingContext& ctx) {
  const int64_t rank = ResultRank(ctx);
  const DimMap map = Without(rank, Bit(DimAt(ctx, 1, rank)));
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t at = map[static_cast<size_t>(d)];
    if (at < 0) continue;
    RowMaker row(ctx);
    for (int operand : ListAt(ctx, 0)) row.Operand(operand, static_cast<ShardState>(at));
    row.Result(0, static_cast<ShardState>(d)).Add();
  }
  AddLinearRow(ctx);
}

// Dimensions that get no padding. Padding with a number would add it once per rank.
void PadSharding(ShardingContext& ctx) {
  const auto& pad = std::get<Shape>(ctx.arg(1));
  DimMap map = Identity(RankOf(ctx));
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    const bool padded = ctx.SizeOf(pad[2 * k]) != 0 || ctx.SizeOf(pad[2 * k + 1]) != 0;
    if (padded) map[map.size() - 1 - k] = -1;
  }
  AddMappedRows(ctx, map);
  if (NumberAt(ctx, 2) == 0.0) AddLinearRow(ctx);
}

void RepeatSharding(ShardingContext& ctx) {
  const auto& repeats = std::get<Shape>(ctx.arg(1));
  const int64_t added = std::ssize(repeats) - RankOf(ctx);
  DimMap map = Identity(RankOf(ctx));
  for (int64_t& d : map) {
    d += added;
    if (ctx.SizeOf(repeats[static_cast<size_t>(d)]) != 1) d = -1;
  }
  AddLinearMap(ctx, map);
}

// Without dimensions it rolls the elements in row-major order.
void RollSharding(ShardingContext& ctx) {
  const int64_t rank = RankOf(ctx);
  AddOtherDims(ctx, DimBits(ctx, 2, rank, /*empty_is_all=*/true));
  AddLinearRow(ctx);
}

void FlipSharding(ShardingContext& ctx) {
  AddOtherDims(ctx, DimBits(ctx, 1, RankOf(ctx), /*empty_is_all=*/false));
  AddLinearRow(ctx);
}

// The matrices of a batch.
void TriangleSharding(ShardingContext& ctx) {
  const int64_t rank = RankOf(ctx);
  AddOtherDims(ctx, Bit(rank - 1) | Bit(rank - 2));
  AddLinearRow(ctx);
}

}  // namespace gt::rules
