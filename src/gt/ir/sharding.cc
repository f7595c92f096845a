#include "gt/ir/sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

namespace gt {
namespace {

int64_t CutSize(const TensorType& type, ShardState state, SymbolValues symbols) {
  return type.sizes[static_cast<size_t>(state)].Evaluate(symbols);
}

// The last shard has what is left; a kernel that wants multiples gets them there, too.
bool Fits(const ShardingRow& row, int64_t size, int64_t ranks) {
  if (row.even && size % ranks != 0) return false;
  const ShardRange first = ShardOf(size, ranks, 0), last = ShardOf(size, ranks, ranks - 1);
  return last.length > 0 && first.length % row.multiple == 0 && last.length % row.multiple == 0;
}

std::string StatesText(const std::vector<ShardState>& states) {
  std::string text;
  for (ShardState state : states) {
    if (!text.empty()) text += ' ';
    text += state == kWhole ? "R" : state == kPartial ? "P" : fmt::format("S{}", state);
  }
  return text;
}

}  // namespace

std::string RowText(const ShardingRow& row) {
  std::string text = StatesText(row.operands) + " -> " + StatesText(row.results);
  if (row.method == ShardMethod::kMaskedIndices) text += " masked";
  if (row.method == ShardMethod::kStatistics) text += fmt::format(" statistics {}", row.statistics);
  if (row.method == ShardMethod::kRandom) text += " random";
  if (row.method == ShardMethod::kSliced) text += " sliced";
  if (row.method == ShardMethod::kAveraged) text += " averaged";
  if (row.even) text += " even";
  if (row.multiple > 1) text += fmt::format(" multiple {}", row.multiple);
  return text;
}

int ShardingContext::OperandAt(int arg) const {
  const auto* operand = std::get_if<OperandRef>(&args_[static_cast<size_t>(arg)]);
  return operand == nullptr ? -1 : operand->index;
}

ShardRange ShardOf(int64_t size, int64_t ranks, int64_t rank) {
  const int64_t length = (size + ranks - 1) / ranks;
  const int64_t begin = std::min(size, rank * length);
  return {begin, std::min(length, size - begin)};
}

bool CanShard(const ShardingRow& row, std::span<const TensorType* const> operands,
              std::span<const TensorType* const> results, SymbolValues symbols, int64_t ranks) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const ShardState state = row.operands[i];
    if (state >= 0 && !Fits(row, CutSize(*operands[i], state, symbols), ranks)) return false;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const ShardState state = row.results[i];
    if (state >= 0 && !Fits(row, CutSize(*results[i], state, symbols), ranks)) return false;
  }
  return true;
}

std::vector<Argument> LocalArguments(const Operator& op, std::span<const Argument> args,
                                     std::span<const Shape> local_results) {
  std::vector<Argument> local(args.begin(), args.end());
  for (size_t i = 0; i < local.size(); ++i) {
    const ArgSpec& spec = op.schema.args[i];
    const bool sizes = spec.kind == ArgKind::kIntList &&
                       (spec.name == "size" || spec.name == "shape" || spec.name == "input_sizes");
    if (sizes) local[i] = local_results[0];
    if (spec.name == "num_weights") local[i] = local_results[0][0];
  }
  return local;
}

}  // namespace gt
