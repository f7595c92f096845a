// The proof of one way of sharding on one call, by simulated ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gt/conformance/fact_checks.h"
#include "gt/ir/sharding.h"

namespace gt::conformance {

struct ShardedCall {
  const Operator& op;
  const std::vector<Argument>& args;
  std::vector<TensorType> operand_types;  // without symbols, as the result types
  std::vector<TensorType> result_types;
  const Tensors& operands;
  const Tensors& results;
  // The operator called with other arguments and operands. Throws what libtorch throws.
  std::function<Tensors(const std::vector<Argument>&, const Tensors&)> call;
};

// How the positions of a dimension are dealt out to ranks.
enum class Deal : uint8_t {
  kStretches,  // consecutive ones
  kInTurns,    // every rank the next one
};

// What is wrong with the row, or nothing. So many ranks must be able to compute by it (CanShard).
std::string ProveRow(const ShardedCall& call, const ShardingRow& row, int64_t ranks, Deal deal);

// The coarsest rounding of a call's dtypes, relative; 0 for integers.
double RoundingOf(const ShardedCall& call);
bool HasPartial(const ShardingRow& row);

}  // namespace gt::conformance
