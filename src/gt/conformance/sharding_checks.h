// Proves the sharding rule of an operator on one call: for every row that the rule gives, the
// operands are cut into shards (or into summands, where the row says partial), the operator is
// called on each rank's, and the results, put together, must be those of the whole call. Shards are
// of unequal length where the row allows it, and positions are also dealt out in turns.
#pragma once

#include <string>
#include <vector>

#include "gt/conformance/shard_proof.h"

namespace gt::conformance {

// The row that does not hold and why, or nothing. A row that calls of this operator have proved
// several times is not checked again.
std::string CheckSharding(const ShardedCall& call);

// Kinds of rows (whatever the dimensions) that the rule has given for calls so far, none of which
// could be checked; and how many rows have been proved.
std::vector<std::string> UnprovedRows(const Operator& op);
int ProvedRows(const Operator& op);

}  // namespace gt::conformance
