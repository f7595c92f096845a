#include "gt/passes/placement/moves.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "gt/base/error.h"

namespace gt {
namespace {

using placement::Piece;
using placement::Pieces;

// An even part of a size, which may have symbols.
Dim Divided(const Dim& size, int64_t parts) {
  if (parts == 1) return size;
  Dim part = FloorDiv(size, Dim(parts));
  if (part * Dim(parts) != size) {
    Fail(ErrorCode::kBadPlan,
         "the plan shares a dimension that is cut into chunks out among {} ranks, more than read "
         "different parts of it; use a mesh or a batch that chunks divide, or no chunks",
         parts);
  }
  return part;
}

bool IsCut(const Placed& placed, size_t piece) {
  return !placed.CutsOf(static_cast<ShardState>(piece)).empty();
}

// Whether another piece of the same dimension is cut as well.
bool SharesDim(const Placed& placed, const Pieces& pieces, size_t piece) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i != piece && pieces[i].dim == pieces[piece].dim && IsCut(placed, i)) return true;
  }
  return false;
}

AxisList Without(const AxisList& axes, const AxisList& taken) {
  AxisList rest;
  for (int8_t axis : axes) {
    if (std::find(taken.begin(), taken.end(), axis) == taken.end()) rest.push_back(axis);
  }
  return rest;
}

AxisList Joined(AxisList first, const AxisList& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

bool EndsWith(const AxisList& axes, const AxisList& last) {
  return axes.size() >= last.size() && std::equal(last.rbegin(), last.rend(), axes.rbegin());
}

}  // namespace

Shape Mover::LocalSizes(const Shape& sizes, const Pieces& pieces, const Placed& placed) const {
  Shape local = sizes;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const AxisList cuts = placed.CutsOf(static_cast<ShardState>(i));
    if (cuts.empty()) continue;
    Dim& size = local[static_cast<size_t>(pieces[i].dim)];
    const bool stretch = pieces[i].first && !SharesDim(placed, pieces, i);
    if (stretch && size.is_const()) {
      size = make_.rank().Own(*size.as_const(), cuts).length;
    } else {
      size = Divided(size, make_.rank().SizeOf(cuts));
    }
  }
  return local;
}

class Mover::Way {
 public:
  Way(Mover& mover, LocalTensor tensor, const Shape& sizes, const Pieces& pieces)
      : mover_(mover),
        make_(mover.make_),
        rank_(mover.make_.rank()),
        sizes_(sizes),
        pieces_(pieces),
        value_(tensor.value),
        at_(tensor.placed) {}

  LocalTensor To(const Placed& to) {
    const AxisList summed = AxesWhere(
        to, [&](int8_t a) { return to.layout[a] == kPartial && at_.layout[a] != kPartial; });
    Placed before = to;
    for (int8_t axis : summed) before.layout[axis] = kWhole;
    if (!FitsOnTheWay(before)) MakeWholeAlong(before);
    TakeShards(before);
    ScatterSums(before);
    Exchange(before);
    AddUp(before);
    Gather(before);
    Sort(before);
    if (!summed.empty()) BecomeSummand(summed);
    GT_CHECK(SamePlace(at_, to), "a tensor that was moved is not where it should be");
    return {value_, to};
  }

 private:
  int axes() const { return rank_.mesh().axes(); }

  // Pieces of one dimension may be cut together only where each divides. What is cut at the start and what
  // at the end do, but both at the same time may not.
  bool FitsOnTheWay(const Placed& to) const {
    placement::Layout layout = at_.layout;
    for (const ShardState leaves : {kWhole, kPartial}) {
      for (int axis = 0; axis < axes(); ++axis) {
        if (at_.layout[axis] == leaves && to.layout[axis] >= 0) layout[axis] = to.layout[axis];
      }
      if (!placement::Fits(layout, pieces_, rank_.mesh())) return false;
    }
    // Exchanges are made one after the other, in the order of pieces.
    for (size_t from = 0; from < pieces_.size(); ++from) {
      for (size_t piece = 0; piece < pieces_.size(); ++piece) {
        bool any = false;
        for (int axis = 0; axis < axes(); ++axis) {
          if (at_.layout[axis] != static_cast<ShardState>(from) ||
              to.layout[axis] != static_cast<ShardState>(piece)) {
            continue;
          }
          layout[axis] = to.layout[axis];
          any = true;
        }
        if (any && !placement::Fits(layout, pieces_, rank_.mesh())) return false;
      }
    }
    return true;
  }

  // Along all axes where something changes.
  void MakeWholeAlong(const Placed& to) {
    Placed whole = at_;
    for (int axis = 0; axis < axes(); ++axis) {
      if (at_.layout[axis] != to.layout[axis]) whole.layout[axis] = kWhole;
    }
    AddUp(whole);
    Gather(whole);
  }

  // The axes, in the order in which `like` has them, for which the condition holds.
  template <typename Condition>
  AxisList AxesWhere(const Placed& like, Condition&& holds) const {
    AxisList found;
    for (int8_t axis : like.order) {
      if (axis < axes() && holds(axis)) found.push_back(axis);
    }
    return found;
  }

  // The tensor as [outer, extent of the piece, inner].
  struct Split {
    Dim outer = 1, extent = 1, inner = 1;
  };
  // With the whole dimension of the piece as its extent.
  Split SplitAtDimOf(size_t piece) const {
    const Shape local = mover_.LocalSizes(sizes_, pieces_, at_);
    const auto dim = static_cast<size_t>(pieces_[piece].dim);
    Split split;
    for (size_t d = 0; d < dim; ++d) split.outer *= local[d];
    for (size_t d = dim + 1; d < local.size(); ++d) split.inner *= local[d];
    split.extent = local[dim];
    return split;
  }
  Split SplitAt(size_t piece) const {
    Split split = SplitAtDimOf(piece);
    if (IsWholeDim(piece)) return split;
    const auto dim = static_cast<size_t>(pieces_[piece].dim);
    // The other pieces of the dimension are numbers; what is left may have a symbol.
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (i == piece || pieces_[i].dim != pieces_[piece].dim || SymbolIsIn(i, piece)) continue;
      const int64_t extent = pieces_[i].size / rank_.SizeOf(at_.CutsOf(static_cast<ShardState>(i)));
      (i < piece ? split.outer : split.inner) *= Dim(extent);
      split.extent = Divided(split.extent, extent);
    }
    if (!sizes_[dim].is_const() && SymbolPiece(dim) != piece) {
      const int64_t extent =
          pieces_[piece].size / rank_.SizeOf(at_.CutsOf(static_cast<ShardState>(piece)));
      const Dim rest = Divided(split.extent, extent);
      (SymbolPiece(dim) < piece ? split.outer : split.inner) *= rest;
      split.extent = extent;
    }
    return split;
  }
  // The same with the other pieces of the dimension outside and inside, whatever is cut; all must divide.
  Split SplitAmongPieces(size_t piece) const {
    Split split = SplitAtDimOf(piece);
    split.extent = 1;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (pieces_[i].dim != pieces_[piece].dim) continue;
      const Dim extent(pieces_[i].size / rank_.SizeOf(at_.CutsOf(static_cast<ShardState>(i))));
      (i < piece ? split.outer : i > piece ? split.inner : split.extent) *= extent;
    }
    return split;
  }
  // Whether every shard of a piece of this dimension is a number of its elements, also once these axes cut
  // `to`, and not a stretch that begins or ends in the middle of one.
  bool PiecesDivide(size_t to, const AxisList& axes) const {
    if (!sizes_[static_cast<size_t>(pieces_[to].dim)].is_const()) return false;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (pieces_[i].dim != pieces_[to].dim) continue;
      const int64_t ways =
          rank_.SizeOf(at_.CutsOf(static_cast<ShardState>(i))) * (i == to ? rank_.SizeOf(axes) : 1);
      if (!IsEven(pieces_[i].size, ways)) return false;
    }
    return true;
  }
  // Of a dimension with symbols, the piece that has them.
  size_t SymbolPiece(size_t dim) const {
    size_t first = pieces_.size();
    for (size_t i = pieces_.size(); i-- > 0;) {
      if (static_cast<size_t>(pieces_[i].dim) != dim) continue;
      if (mover_.open_.contains(pieces_[i].id)) return i;
      first = i;
    }
    return first;
  }
  bool SymbolIsIn(size_t i, size_t piece) const {
    const auto dim = static_cast<size_t>(pieces_[piece].dim);
    return !sizes_[dim].is_const() && SymbolPiece(dim) == i;
  }
  // Shards of the piece are stretches of its dimension.
  bool IsWholeDim(size_t piece) const {
    return pieces_[piece].first && !SharesDim(at_, pieces_, piece);
  }
  // How many elements the piece has before these axes cut what `outside` has left of it.
  int64_t ExtentOf(size_t piece, const AxisList& outside) const {
    const int64_t extent = IsWholeDim(piece) ? pieces_[piece].dim_size : pieces_[piece].size;
    return rank_.Own(extent, outside).length;
  }
  static bool IsEven(int64_t extent, int64_t parts) { return extent % parts == 0; }

  void Set(size_t piece, const AxisList& cut_by) {
    for (int8_t axis : cut_by) at_.layout[axis] = static_cast<ShardState>(piece);
    at_.MoveInside(cut_by);
  }
  void SetState(const AxisList& axes, ShardState state) {
    for (int8_t axis : axes) at_.layout[axis] = state;
  }

  // Has the local sizes again.
  void Restore() { value_ = make_.View(value_, mover_.LocalSizes(sizes_, pieces_, at_)); }

  // Of what all have, each rank takes its shard.
  void TakeShards(const Placed& to) {
    for (size_t piece = 0; piece < pieces_.size(); ++piece) {
      const AxisList axes = AxesWhere(to, [&](int8_t axis) {
        return at_.layout[axis] == kWhole && to.layout[axis] == static_cast<ShardState>(piece);
      });
      if (!axes.empty()) TakeShard(piece, axes);
    }
  }

  void TakeShard(size_t piece, const AxisList& axes) {
    const auto dim = static_cast<size_t>(pieces_[piece].dim);
    const AxisList outside = at_.CutsOf(static_cast<ShardState>(piece));
    if (IsWholeDim(piece)) {
      Dim begin, length;
      if (sizes_[dim].is_const()) {
        const ShardRange own = rank_.Own(ExtentOf(piece, outside), axes);
        begin = own.begin;
        length = own.length;
      } else {
        length = Divided(value_->type().sizes[dim], rank_.SizeOf(axes));
        begin = length * Dim(rank_.IndexIn(axes));
      }
      Set(piece, axes);
      value_ = make_.Slice(value_, static_cast<int64_t>(dim), begin, length);
      return;
    }
    const Split split = SplitAt(piece);
    const Dim length = Divided(split.extent, rank_.SizeOf(axes));
    Value* viewed = make_.View(make_.Contiguous(value_), {split.outer, split.extent, split.inner});
    viewed = make_.Slice(viewed, 1, length * Dim(rank_.IndexIn(axes)), length);
    Set(piece, axes);
    value_ = make_.Contiguous(viewed);
    Restore();
  }

  // [outer, extent, inner] as [outer, ranks, longest shard, inner].
  Value* InShards(Value* x, size_t piece, const AxisList& outside, const AxisList& axes,
                  const Split& split) {
    const int64_t ranks = rank_.SizeOf(axes);
    Value* viewed = make_.View(make_.Contiguous(x), {split.outer, split.extent, split.inner});
    if (!HasUnevenShards(piece, outside, axes)) {
      return make_.View(viewed,
                        {split.outer, Dim(ranks), Divided(split.extent, ranks), split.inner});
    }
    const int64_t extent = ExtentOf(piece, outside), longest = rank_.Longest(extent, axes);
    std::vector<Value*> parts;
    if (OnlyEndIsShort(extent, axes)) {
      parts.push_back(make_.PadEnd(viewed, 1, ranks * longest - extent));
    } else {
      for (int64_t i = 0; i < ranks; ++i) {
        const ShardRange range = rank_.OfIndex(extent, axes, i);
        parts.push_back(make_.PadEnd(make_.Slice(viewed, 1, range.begin, range.length), 1,
                                     longest - range.length));
      }
    }
    return make_.View(make_.Contiguous(make_.Concatenate(parts, 1)),
                      {split.outer, Dim(ranks), Dim(longest), split.inner});
  }

  // The other way round, of shards with their padding.
  Value* FromShards(Value* x, size_t piece, const AxisList& outside, const AxisList& axes) {
    const Shape& sizes = x->type().sizes;
    const int64_t ranks = rank_.SizeOf(axes);
    Value* viewed = make_.View(make_.Contiguous(x), {sizes[0], sizes[1] * sizes[2], sizes[3]});
    if (!sizes[2].is_const() || !HasUnevenShards(piece, outside, axes)) return viewed;
    const int64_t extent = ExtentOf(piece, outside), longest = *sizes[2].as_const();
    if (OnlyEndIsShort(extent, axes)) return make_.Slice(viewed, 1, 0, extent);
    std::vector<Value*> parts;
    for (int64_t i = 0; i < ranks; ++i) {
      parts.push_back(make_.Slice(viewed, 1, i * longest, rank_.OfIndex(extent, axes, i).length));
    }
    return make_.Concatenate(parts, 1);
  }

  // On some rank: what is done must be the same for all of them.
  bool HasUnevenShards(size_t piece, const AxisList& outside, const AxisList& axes) const {
    if (!sizes_[static_cast<size_t>(pieces_[piece].dim)].is_const()) return false;
    return !IsEven(ExtentOf(piece, {}), rank_.SizeOf(outside) * rank_.SizeOf(axes));
  }
  bool OnlyEndIsShort(int64_t extent, const AxisList& axes) const {
    const int64_t ranks = rank_.SizeOf(axes), longest = rank_.Longest(extent, axes);
    return rank_.OfIndex(extent, axes, ranks - 1).begin == (ranks - 1) * longest;
  }

  // Elements are rows of dimension 0, and so are the shards of the piece.
  bool IsOutermost(const Split& split, size_t piece) const {
    return split.outer.Is(1) && pieces_[piece].dim == 0 && IsWholeDim(piece);
  }

  // A stretch of elements that is cut as a whole: a dimension, or a piece of one.
  struct Stretch {
    size_t piece = 0;
    Dim extent;  // local, under `at_`
  };
  // Of a tensor that is about to be, or is, cut like this. Dimensions are taken apart only where an inner
  // piece is cut.
  std::vector<Stretch> StretchesOf(const Placed& cut) const {
    const Shape local = mover_.LocalSizes(sizes_, pieces_, at_);
    std::vector<Stretch> stretches;
    for (size_t begin = 0, end = 0; begin < pieces_.size(); begin = end) {
      bool apart = false;
      for (end = begin; end < pieces_.size() && pieces_[end].dim == pieces_[begin].dim; ++end) {
        apart = apart || (end > begin && IsCut(cut, end));
      }
      const Dim& size = local[static_cast<size_t>(pieces_[begin].dim)];
      if (!apart) {
        stretches.push_back({begin, size});
        continue;
      }
      Dim rest = size;
      const size_t open =
          size.is_const() ? end : SymbolPiece(static_cast<size_t>(pieces_[begin].dim));
      for (size_t i = begin; i < end; ++i) {
        const int64_t ways = rank_.SizeOf(at_.CutsOf(static_cast<ShardState>(i)));
        stretches.push_back({i, Dim(pieces_[i].size / ways)});
        if (i != open) rest = Divided(rest, pieces_[i].size / ways);
      }
      if (open < end) stretches[stretches.size() - (end - open)].extent = rest;
    }
    return stretches;
  }
  static size_t PlaceOf(const AxisList& axes, int8_t axis) {
    return static_cast<size_t>(std::find(axes.begin(), axes.end(), axis) - axes.begin());
  }

  // Whether these axes concern several pieces, and shards of all are equally long: then one collective does
  // for all of them what one for each piece would, and elements are rearranged around it.
  bool CanGoTogether(const AxisList& axes, const Placed& cut) const {
    bool several = false;
    for (int8_t axis : axes) {
      const ShardState piece = cut.layout[axis];
      several = several || piece != cut.layout[axes[0]];
      const Piece& of = pieces_[static_cast<size_t>(piece)];
      if (!IsEven(of.first ? of.dim_size : of.size, rank_.SizeOf(cut.CutsOf(piece)))) return false;
    }
    return several;
  }

  void ScatterTogether(const AxisList& axes, const Placed& to) {
    Placed after = at_;
    for (int8_t axis : axes) after.layout[axis] = to.layout[axis];
    after.MoveInside(axes);
    // [ranks of an axis, rest] for every stretch that is cut; then all ranks to the front.
    Shape view;
    std::vector<int64_t> front(axes.size()), rest;
    for (const Stretch& stretch : StretchesOf(after)) {
      Dim extent = stretch.extent;
      for (int8_t axis : axes) {
        if (to.layout[axis] != static_cast<ShardState>(stretch.piece)) continue;
        front[PlaceOf(axes, axis)] = static_cast<int64_t>(view.size());
        view.emplace_back(rank_.mesh().size(axis));
        extent = Divided(extent, rank_.mesh().size(axis));
      }
      rest.push_back(static_cast<int64_t>(view.size()));
      view.push_back(extent);
    }
    Value* value = make_.View(make_.Contiguous(value_), view);
    front.insert(front.end(), rest.begin(), rest.end());
    value = make_.Contiguous(make_.Permute(value, front));
    const Dim ranks(rank_.SizeOf(axes));
    const Dim part = Divided(Product(value->type().sizes), *ranks.as_const());
    value_ = make_.ReduceScatter(make_.View(value, {ranks, part}), axes);
    at_ = after;
    Restore();
  }

  void GatherTogether(const AxisList& axes) {
    Shape view;
    std::vector<int64_t> order;
    for (int8_t axis : axes) view.emplace_back(rank_.mesh().size(axis));
    for (const Stretch& stretch : StretchesOf(at_)) {
      for (int8_t axis : axes) {
        if (at_.layout[axis] != static_cast<ShardState>(stretch.piece)) continue;
        order.push_back(static_cast<int64_t>(PlaceOf(axes, axis)));
      }
      order.push_back(static_cast<int64_t>(view.size()));
      view.push_back(stretch.extent);
    }
    Value* value = make_.AllGather(make_.Contiguous(value_), axes);
    value_ = make_.Contiguous(make_.Permute(make_.View(value, view), order));
    SetState(axes, kWhole);
    Restore();
  }

  // The last axes, whose ranks are close to each other, first: what goes far is smaller then.
  void ScatterSums(const Placed& to) {
    const AxisList all =
        AxesWhere(to, [&](int8_t a) { return at_.layout[a] == kPartial && to.layout[a] >= 0; });
    if (all.size() > 1) {
      Placed after = at_;
      for (int8_t axis : all) after.layout[axis] = to.layout[axis];
      after.MoveInside(all);
      if (CanGoTogether(all, after)) return ScatterTogether(all, to);
    }
    for (int axis = axes(); axis-- > 0;) {
      const ShardState piece = to.layout[axis];
      if (at_.layout[axis] != kPartial || piece < 0) continue;
      ScatterSum(static_cast<size_t>(piece), AxesWhere(to, [&](int8_t a) {
                   return at_.layout[a] == kPartial && to.layout[a] == piece;
                 }));
    }
  }

  void ScatterSum(size_t piece, const AxisList& axes) {
    const AxisList outside = at_.CutsOf(static_cast<ShardState>(piece));
    const Split split = SplitAt(piece);
    const bool uneven = HasUnevenShards(piece, outside, axes);
    const bool direct = IsOutermost(split, piece) && !uneven;
    Value* sum = make_.Contiguous(value_);
    if (!direct) {
      sum = InShards(sum, piece, outside, axes, split);
      if (!split.outer.Is(1)) sum = make_.Contiguous(make_.Permute(sum, {1, 0, 2, 3}));
      const Dim longest = sum->type().sizes[2];
      sum = make_.View(sum, {Dim(rank_.SizeOf(axes)) * split.outer, longest, split.inner});
    }
    sum = make_.ReduceScatter(sum, axes);
    if (uneven) {
      sum = make_.Contiguous(
          make_.Slice(sum, 1, 0, rank_.Own(ExtentOf(piece, outside), axes).length));
    }
    value_ = sum;
    Set(piece, axes);
    Restore();
  }

  void AddUp(const Placed& to) {
    const AxisList axes = AxesWhere(
        kDefault, [&](int8_t a) { return at_.layout[a] == kPartial && to.layout[a] == kWhole; });
    if (axes.empty()) return;
    value_ = make_.AllReduce(make_.Contiguous(value_), "sum", axes);
    SetState(axes, kWhole);
  }

  void Exchange(const Placed& to) {
    for (size_t from = 0; from < pieces_.size(); ++from) {
      for (size_t piece = 0; piece < pieces_.size(); ++piece) {
        if (from == piece) continue;
        const AxisList axes = AxesWhere(to, [&](int8_t axis) {
          return at_.layout[axis] == static_cast<ShardState>(from) &&
                 to.layout[axis] == static_cast<ShardState>(piece);
        });
        if (!axes.empty()) ExchangePieces(from, piece, axes);
      }
    }
  }

  // Shards of one piece become shards of another: each rank sends to every other its part of what it
  // has.
  void ExchangePieces(size_t from, size_t to, const AxisList& axes) {
    BringInside(from, axes);
    const int64_t ranks = rank_.SizeOf(axes);
    const bool uneven = HasUneven(from, axes) || HasUnevenTarget(to, axes);
    const bool same_dim = pieces_[from].dim == pieces_[to].dim;
    if (uneven ||
        (same_dim && !PiecesDivide(to, axes))) {  // rare: gather, and take the other shard
      GatherPiece(from, axes);
      TakeShard(to, axes);
      return;
    }
    // [a, x, b, y, c]: x and y are the pieces, in their order.
    const bool from_first = from < to;
    const auto split_at = [&](size_t piece) {
      return same_dim ? SplitAmongPieces(piece) : SplitAt(piece);
    };
    const Split outer = split_at(from_first ? from : to), inner = split_at(from_first ? to : from);
    const Dim a = outer.outer, c = inner.inner, x = outer.extent, y = inner.extent;
    const Dim b = FloorDiv(outer.inner, y * c);
    const Dim n(ranks);
    Value* value = make_.Contiguous(value_);
    if (from_first) {
      value = make_.View(value, {a, x, b, n, Divided(y, ranks), c});
      value = make_.Contiguous(make_.Permute(value, {3, 0, 1, 2, 4, 5}));
    } else {
      value = make_.View(value, {a, n, Divided(x, ranks), b, y, c});
      if (!a.Is(1)) value = make_.Contiguous(make_.Permute(value, {1, 0, 2, 3, 4, 5}));
    }
    const Shape one_each(static_cast<size_t>(ranks), Dim(1));
    const Dim part = FloorDiv(Product(value->type().sizes), n);
    value = make_.AllToAll(make_.View(value, {n, part}), one_each, one_each, axes);
    if (from_first) {  // shards of x arrive, each with its stretch of y
      value = make_.View(value, {n, a, x, b, Divided(y, ranks), c});
      if (!a.Is(1)) value = make_.Contiguous(make_.Permute(value, {1, 0, 2, 3, 4, 5}));
    } else {
      value = make_.View(value, {n, a, Divided(x, ranks), b, y, c});
      value = make_.Contiguous(make_.Permute(value, {1, 2, 3, 0, 4, 5}));
    }
    value_ = value;
    Set(to, axes);
    Restore();
  }

  bool HasUneven(size_t piece, const AxisList& axes) const {
    return HasUnevenShards(piece, Without(at_.CutsOf(static_cast<ShardState>(piece)), axes), axes);
  }
  bool HasUnevenTarget(size_t piece, const AxisList& axes) const {
    return HasUnevenShards(piece, at_.CutsOf(static_cast<ShardState>(piece)), axes);
  }

  // The first axes first: what comes from afar is still small.
  void Gather(const Placed& to) {
    const AxisList all =
        AxesWhere(at_, [&](int8_t a) { return at_.layout[a] >= 0 && to.layout[a] == kWhole; });
    if (all.size() > 1 && CanGoTogether(all, at_)) {
      for (int8_t axis : all) {
        const ShardState piece = at_.layout[axis];
        BringInside(static_cast<size_t>(piece), AxesWhere(at_, [&](int8_t a) {
                      return at_.layout[a] == piece && to.layout[a] == kWhole;
                    }));
      }
      return GatherTogether(
          AxesWhere(at_, [&](int8_t a) { return at_.layout[a] >= 0 && to.layout[a] == kWhole; }));
    }
    for (int axis = 0; axis < axes(); ++axis) {
      const ShardState piece = at_.layout[axis];
      if (piece < 0 || to.layout[axis] != kWhole) continue;
      const AxisList gathered = AxesWhere(
          at_, [&](int8_t a) { return at_.layout[a] == piece && to.layout[a] == kWhole; });
      BringInside(static_cast<size_t>(piece), gathered);
      GatherPiece(static_cast<size_t>(piece), gathered);
    }
  }

  // Along the innermost axes that cut the piece.
  void GatherPiece(size_t piece, const AxisList& axes) {
    const AxisList outside = Without(at_.CutsOf(static_cast<ShardState>(piece)), axes);
    const bool uneven = HasUnevenShards(piece, outside, axes);
    const Split split = SplitAt(piece);
    Value* value = make_.Contiguous(value_);
    if (IsOutermost(split, piece) && !uneven) {
      value_ = make_.AllGather(value, axes);
    } else {
      const Dim ranks(rank_.SizeOf(axes));
      Dim longest = split.extent;
      value = make_.View(value, {split.outer, split.extent, split.inner});
      if (uneven) {
        longest = rank_.Longest(ExtentOf(piece, outside), axes);
        value = make_.Contiguous(
            make_.PadEnd(value, 1, *longest.as_const() - *split.extent.as_const()));
      }
      value = make_.AllGather(value, axes);
      value = make_.View(value, {ranks, split.outer, longest, split.inner});
      if (!split.outer.Is(1)) value = make_.Permute(value, {1, 0, 2, 3});
      value = make_.View(make_.Contiguous(value), {split.outer, ranks, longest, split.inner});
      value_ = make_.Contiguous(FromShards(value, piece, outside, axes));
    }
    SetState(axes, kWhole);
    Restore();
  }

  // Makes these the innermost axes that cut the piece.
  void BringInside(size_t piece, const AxisList& axes) {
    const AxisList cuts = at_.CutsOf(static_cast<ShardState>(piece));
    if (EndsWith(cuts, axes)) return;
    Reorder(piece, Joined(Without(cuts, axes), axes));
  }

  void Sort(const Placed& to) {
    for (size_t piece = 0; piece < pieces_.size(); ++piece) {
      const AxisList wanted = to.CutsOf(static_cast<ShardState>(piece));
      if (at_.CutsOf(static_cast<ShardState>(piece)) != wanted) Reorder(piece, wanted);
    }
  }

  // The same axes cut the piece in another order: shards change places.
  void Reorder(size_t piece, const AxisList& wanted) {
    AxisList cuts = at_.CutsOf(static_cast<ShardState>(piece));
    size_t same = 0;
    while (same < cuts.size() && cuts[same] == wanted[same]) ++same;
    const AxisList outside(cuts.begin(), cuts.begin() + static_cast<ptrdiff_t>(same));
    const AxisList now(cuts.begin() + static_cast<ptrdiff_t>(same), cuts.end());
    const AxisList then(wanted.begin() + static_cast<ptrdiff_t>(same), wanted.end());
    if (HasUnevenShards(piece, outside, now)) {
      GatherPiece(piece, now);
      TakeShard(piece, then);
      return;
    }
    // Whoever has the number under the new order that this rank has under the old one gets its shard.
    const std::vector<int64_t> ranks = rank_.RanksAlong(now);
    auto number = [&](int64_t rank, const AxisList& axes) {
      return MeshRank(rank_.mesh(), rank).IndexIn(axes);
    };
    value_ = make_.Contiguous(value_);
    const Shape local = value_->type().sizes;
    const Dim rows = value_->type().rank() > 0 ? local[0] : Dim(1);
    Shape sent(ranks.size(), Dim(0)), received(ranks.size(), Dim(0));
    const int64_t own = rank_.IndexIn(now), own_then = rank_.IndexIn(then);
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (number(ranks[i], then) == own) sent[i] = rows;
      if (number(ranks[i], now) == own_then) received[i] = rows;
    }
    value_ = make_.AllToAll(value_, std::move(received), std::move(sent), now);
    at_.MoveInside(then);
  }

  // What all ranks along these axes have becomes a sum of one summand each: the first of them contributes it,
  // the others nothing. Nothing is -0.0, since 0.0 would turn a sum of -0.0 into 0.0. All ranks have the same
  // nodes, so that passes do the same on all of them.
  void BecomeSummand(const AxisList& axes) {
    Value* nothing = make_.Make("aten::full")
                         .Set("size", Shape{})
                         .Set("fill_value", Dim(rank_.IsFirstAlong(axes) ? 0 : 1))
                         .Set("dtype", DType::kBool)
                         .Set("device", value_->type().device)
                         .Result();
    const bool has_signs = IsFloating(value_->type().dtype);
    value_ = make_.Make("aten::masked_fill.Scalar")
                 .Set("self", value_)
                 .Set("mask", nothing)
                 .Set("value", has_signs ? Argument(-0.0) : Argument(Dim(0)))
                 .Result();
    SetState(axes, kPartial);
  }

  static constexpr Placed kDefault = {};

  Mover& mover_;
  NodeMaker& make_;
  const MeshRank& rank_;
  const Shape& sizes_;
  const Pieces& pieces_;
  Value* value_;
  Placed at_;
};

LocalTensor Mover::Move(LocalTensor tensor, const Shape& sizes, const Pieces& pieces,
                        const Placed& to) {
  if (SamePlace(tensor.placed, to)) return tensor;
  const DType dtype = tensor.value->type().dtype;
  if (IsComplex(dtype)) return MoveComplex(tensor, sizes, pieces, to);
  if (dtype == DType::kBool) {  // backends send bytes
    tensor.value = make_.ViewAs(tensor.value, DType::kUInt8);
    LocalTensor moved = Way(*this, tensor, sizes, pieces).To(to);
    return {make_.ViewAs(moved.value, DType::kBool), to};
  }
  return Way(*this, tensor, sizes, pieces).To(to);
}

// As pairs of numbers, which backends can send.
LocalTensor Mover::MoveComplex(LocalTensor tensor, Shape sizes, Pieces pieces, const Placed& to) {
  sizes.emplace_back(2);
  pieces.push_back({static_cast<int32_t>(sizes.size()) - 1, 2, 2});
  // A copy is no conjugate view, which could not be looked at as pairs.
  Value* copy = make_.Make("aten::clone")
                    .Set("self", tensor.value)
                    .Set("memory_format", MemoryFormat::kContiguous)
                    .Result();
  tensor.value = make_.Make("aten::view_as_real").Set("self", copy).Result();
  const LocalTensor moved = Way(*this, tensor, sizes, pieces).To(to);
  return {make_.Make("aten::view_as_complex").Set("self", make_.Contiguous(moved.value)).Result(),
          to};
}

}  // namespace gt
