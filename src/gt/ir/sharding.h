// How an operator can be computed in shards, one per rank. An operator declares the ways in its entry
// in ops/; each is proved against libtorch by the conformance tests: shards of the operands are
// computed one by one, put together, and compared with the operator on the whole.
//
// A way of sharding is about one axis of a mesh. Ways along several axes are independent of each
// other, so that a rule says the same for any mesh.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gt/ir/dim.h"
#include "gt/ir/operator.h"
#include "gt/ir/type.h"

namespace gt {

// Where one operand or result is along an axis: a dimension (0 or more) that is cut into shards, or
// one of these.
using ShardState = int8_t;
inline constexpr ShardState kWhole = -1;    // every rank has all of it
inline constexpr ShardState kPartial = -2;  // the sum of what the ranks have

// What a rank does beyond calling the operator on its shards.
enum class ShardMethod : uint8_t {
  kPlain,
  // Indices count along the dimension that is cut: each rank subtracts where its shard begins, and
  // elements whose index is in no shard of its own count as zero. (embedding by rows, nll_loss)
  kMaskedIndices,
  // Statistics along the dimension that is cut (a maximum, a sum) are combined among ranks within the
  // operator: ShardingRow::statistics counts how many.
  kStatistics,
  // Random numbers are drawn for the whole tensor, by position, and each rank takes its shard's.
  kRandom,
};

// One way: the state of each operand (Node::operands()) and each result.
struct ShardingRow {
  std::vector<ShardState> operands;
  std::vector<ShardState> results;
  ShardMethod method = ShardMethod::kPlain;
  int8_t statistics = 0;  // all-reduces of a result without the dimension that is cut
  bool even = false;      // only if all shards are equally long
};

// What a rule sees, and where it puts its answer. All ranks having everything is always possible and
// never added.
class ShardingContext {
 public:
  ShardingContext(std::span<const Argument> args, std::span<const TensorType* const> operands,
                  std::span<const TensorType* const> results, SymbolValues symbols)
      : args_(args), operands_(operands), results_(results), symbols_(symbols) {}

  std::span<const TensorType* const> operands() const { return operands_; }
  std::span<const TensorType* const> results() const { return results_; }
  const Argument& arg(int i) const { return args_[static_cast<size_t>(i)]; }
  // The operand at a schema position: its place among the operands, or -1 (missing, or a number).
  int OperandAt(int arg) const;
  int64_t SizeOf(const Dim& dim) const { return dim.Evaluate(symbols_); }

  void Add(ShardingRow row) { rows_.push_back(std::move(row)); }
  std::vector<ShardingRow>& rows() { return rows_; }

 private:
  std::span<const Argument> args_;
  std::span<const TensorType* const> operands_;
  std::span<const TensorType* const> results_;
  SymbolValues symbols_;
  std::vector<ShardingRow> rows_;
};

}  // namespace gt
