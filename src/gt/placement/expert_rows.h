// Experts: how the stretch from a router's choice to the sum of its experts' results is sharded.
//
// On one device the rows of all tokens, each as often as it has experts, are sorted by expert, multiplied
// by the matrices of their experts, and put back. On many, each rank sorts the rows of its own tokens;
// then either it has the matrices of all experts, or the rows travel to the ranks that have those of
// theirs, and back. No operator's rule can say so, since a sort of shards is no shard of the sort: it
// is right only for the whole stretch, which is found by the part that nodes have in it (EpRole).
#pragma once

#include <optional>
#include <vector>

#include "gt/placement/dim_pieces.h"

namespace gt::placement {

struct ExpertClass {
  bool inside = false;        // part of the stretch
  bool routed = false;        // its result is in the order of experts, or says where rows are in it
  bool takes_routed = false;  // its first operand is in the order of experts
  bool all_routed = false;    // all its operands but parameters are
  std::vector<bool> operands;  // which of them are
};

// By class.
std::vector<ExpertClass> FindExpertClasses(const Folding& folding);

// Which dimensions of a node of the stretch are of the same rows.
std::optional<ShardingRow> TokenRow(const Node& node, const ExpertClass& expert);

// Adds the ways of sharding that hold inside of the stretch.
void AddExpertRows(const Node& node, const ExpertClass& expert, ClassPieces& pieces);

}  // namespace gt::placement
