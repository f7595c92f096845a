// What sharding rules have in common. A rule adds one row for each way (ir/sharding.h); RowMaker
// drops those that make no sense for the sizes and dtypes of a call, so that rules need not ask.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "gt/ir/sharding.h"

namespace gt::rules {

// One row under construction. What is not set is whole.
class RowMaker {
 public:
  explicit RowMaker(ShardingContext& ctx);
  // By position among the operands, or by schema position. A missing one is ignored. One that is
  // passed twice (x * x) and would have to be in two states makes the row void.
  RowMaker& Operand(int index, ShardState state);
  RowMaker& Arg(int arg, ShardState state) { return Operand(ctx_.OperandAt(arg), state); }
  // Results that are undefined stay whole.
  RowMaker& Result(int index, ShardState state);
  RowMaker& Results(ShardState state);
  RowMaker& Method(ShardMethod method, int8_t statistics = 0);
  RowMaker& Even(bool even = true);
  RowMaker& Multiple(int64_t multiple);
  void Void() { void_ = true; }
  // Adds the row unless it is void, nothing is cut or partial, a dimension that is cut has fewer
  // than two elements, or a partial sum has a dtype that cannot be summed afterwards (bool, or
  // integers made of floating-point numbers).
  void Add();

 private:
  bool CanCut(const TensorType& type, ShardState state) const;
  bool MakesSense() const;

  ShardingContext& ctx_;
  ShardingRow row_;
  std::vector<bool> set_;
  bool void_ = false;
};

// Arguments.

// The argument as a number; nothing for a tensor or a missing one.
std::optional<double> NumberAt(const ShardingContext& ctx, int arg);
int64_t IntAt(const ShardingContext& ctx, int arg);
bool BoolAt(const ShardingContext& ctx, int arg);
// A dimension counted from the front. A tensor without dimensions counts as having one.
int64_t DimAt(const ShardingContext& ctx, int arg, int64_t rank);
// Bits of the dimensions in a list; all of them if it is missing, or empty and `empty_is_all`.
uint64_t DimBits(const ShardingContext& ctx, int arg, int64_t rank, bool empty_is_all);
const TensorType& TensorAt(const ShardingContext& ctx, int arg);
std::vector<int> ListAt(const ShardingContext& ctx, int arg);  // operands; -1 where missing

// Broadcasting: where an operand is when dimension d of `shape` is cut. Nothing if its sizes do not
// line up with the shape.
std::optional<ShardState> BroadcastState(const ShardingContext& ctx, const TensorType& operand,
                                         const Shape& shape, size_t d);

// Rows.

// Each dimension of the results, with every operand's that broadcasts to it.
void AddPointwiseRows(ShardingContext& ctx);
// The operands at these schema positions are partial together, all others whole, and so are all
// results. Void where one of them is a number: a number would be added once per rank.
void AddLinearRow(ShardingContext& ctx, std::initializer_list<int> args);
// The same for every operand.
void AddLinearRow(ShardingContext& ctx);
// One operand; `map[d]` is the dimension of every result that has operand dimension d, or -1.
void AddMappedRows(ShardingContext& ctx, std::span<const int64_t> map);
// Every dimension of the first operand that is not among `bits`, at the same place in all operands
// and results of its rank.
void AddOtherDims(ShardingContext& ctx, uint64_t bits);
// Products, by a letter for each dimension ("mk", "kn", "mn"): letters of the result are cut
// together, others give partial sums, upper-case ones stay whole. `added` is the schema position of what is added, or -1; the
// factors are at the two positions after it. Shards along the dense dimension of a factor are
// multiples of `alignment`. Also partial sums of one factor.
void AddProductRows(ShardingContext& ctx, int added, std::string_view a, std::string_view b,
                    std::string_view result, int64_t alignment = 1);

// Rules that operators of several families share.

void PointwiseSharding(ShardingContext& ctx);
// Pointwise and linear in all operands together.
void LinearSharding(ShardingContext& ctx);
// Pointwise and linear in the operands at these schema positions, the others given.
template <int... kArgs>
void LinearInSharding(ShardingContext& ctx) {
  AddPointwiseRows(ctx);
  AddLinearRow(ctx, {kArgs...});
}
// Any dimension but the one that an argument names.
template <int kDim>
void OtherDimsSharding(ShardingContext& ctx) {
  AddOtherDims(ctx, uint64_t{1} << DimAt(ctx, kDim, ctx.operands()[0]->rank()));
}

}  // namespace gt::rules
