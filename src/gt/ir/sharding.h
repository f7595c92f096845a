// How an operator can be computed in shards, one per rank. An operator declares the ways in its entry
// in ops/; each is proved against libtorch by the conformance tests: shards of the operands are
// computed one by one, put together, and compared with the operator on the whole.
//
// A way of sharding is about one axis of a mesh. Ways along several axes are independent of each
// other, so that a rule says the same for any mesh.
#pragma once

#include <cstdint>
#include <span>
#include <string>
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
  // Each rank makes the whole, which takes no time to speak of, and keeps its shard. (arange)
  kSliced,
  // A mean of a shard is divided by the number of ranks, to be a summand of the mean of all. (mean)
  kAveraged,
};

// One way: the state of each operand (Node::operands()) and each result. A plain one that cuts
// dimensions of one size, and is not `even`, also holds if the ranks' positions along them are not
// consecutive, as long as they are the same everywhere.
struct ShardingRow {
  std::vector<ShardState> operands;
  std::vector<ShardState> results;
  ShardMethod method = ShardMethod::kPlain;
  int8_t statistics = 0;  // all-reduces of a result without the dimension that is cut
  // Only if the ranks divide every dimension that is cut, of operands and of results. (A view that
  // joins two dimensions cuts one that is longer by the size of the other.)
  bool even = false;
  // Every shard is a multiple of so many elements long: kernels that want aligned rows.
  int64_t multiple = 1;
  friend bool operator==(const ShardingRow&, const ShardingRow&) = default;
};

// As text: "S0 R -> P masked": cut along dimension 0, whole, a partial sum.
std::string RowText(const ShardingRow& row);

// What of a dimension one rank has: as many elements as all others, the last ones maybe fewer or
// none.
struct ShardRange {
  int64_t begin = 0;
  int64_t length = 0;
};
ShardRange ShardOf(int64_t size, int64_t ranks, int64_t rank);

// Whether so many ranks can compute by this row, each with at least one element of what is cut.
bool CanShard(const ShardingRow& row, std::span<const TensorType* const> operands,
              std::span<const TensorType* const> results, SymbolValues symbols, int64_t ranks);

// The arguments of a rank's call, given the sizes of its results: arguments that are such sizes (of
// a view, of a new tensor, of what a gradient belongs to) become the rank's. Everything else about
// a call is the same on a shard.
std::vector<Argument> LocalArguments(const Operator& op, std::span<const Argument> args,
                                     std::span<const Shape> local_results);

// What a rule sees, and where it puts its answer. All ranks having everything is always possible and
// never added.
class ShardingContext {
 public:
  ShardingContext(std::span<const Argument> args, std::span<const TensorType* const> operands,
                  std::span<const TensorType* const> results, SymbolValues symbols)
      : args_(args), operands_(operands), results_(results), symbols_(symbols) {}

  std::span<const TensorType* const> operands() const { return operands_; }
  std::span<const TensorType* const> results() const { return results_; }
  std::span<const Argument> args() const { return args_; }
  const Argument& arg(int i) const { return args_[static_cast<size_t>(i)]; }
  // The operand at a schema position: its place among the operands, or -1 (missing, or a number).
  int OperandAt(int arg) const;
  int64_t SizeOf(const Dim& dim) const { return dim.Evaluate(symbols_); }
  SymbolValues symbols() const { return symbols_; }

  void Add(ShardingRow row) { rows_.push_back(std::move(row)); }
  std::vector<ShardingRow>& rows() { return rows_; }
  const std::vector<ShardingRow>& rows() const { return rows_; }

 private:
  std::span<const Argument> args_;
  std::span<const TensorType* const> operands_;
  std::span<const TensorType* const> results_;
  SymbolValues symbols_;
  std::vector<ShardingRow> rows_;
};

}  // namespace gt
