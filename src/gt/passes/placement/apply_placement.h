// Rewrites a step that one device would run into what one rank of a mesh runs, as a plan says.
//
// Every node is inferred again at local shapes: the rules of operators check that shards fit together.
// Wherever a plan has a value in another layout than its user wants, it is moved (moves.h), once for
// all users that want the same. What a rank does beyond calling an operator on its shards (masked
// indices, statistics, means, random numbers, rows that travel to their experts) is in sharded_calls.h
// and expert_moves.h.
//
// Invariants:
//   - The graphs of all ranks launch the same collectives in the same order.
//   - A value is where its layout says, in every element: partial sums are sums, shards are stretches.
//   - Parameters, gradients and buffers of a rank are boxes of the whole; a gradient is laid out as its
//     parameter is, and buffers are updated as one device would.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/passes/placement/shard_geometry.h"
#include "gt/placement/plan.h"

namespace gt {

// Where an input of the whole step is.
struct PlacedInput {
  Placed placed;
  placement::Pieces pieces;
  std::vector<int64_t> sizes;  // of the whole

  TensorBox BoxOn(const MeshRank& rank) const { return BoxOf(placed, pieces, rank, sizes); }
  // Whether the rank is the first of those that have the same, and so answers for it.
  bool IsAnsweredBy(const MeshRank& rank) const {
    return rank.IsFirstAlong(WholeAxes(placed.layout, rank.mesh().axes()));
  }
};

struct PlacedStep {
  int64_t rank = 0;
  std::map<std::string, PlacedInput> inputs;  // parameters, buffers, tokens: by name
  int64_t moved = 0;                          // tensors that are moved
  int64_t exchanges = 0;                      // of rows with experts, by layer
  // By module whose experts are spread over ranks: along which axes, in the order of the experts.
  std::map<std::string, AxisList> expert_axes;
};

// Fails with BadPlan, naming the first difference, if the plan is for another mesh or another step.
// `stored` says where inputs are that another step has placed already, with the same layouts.
PlacedStep ApplyPlacement(Graph& graph, const placement::Plan& plan, int64_t rank,
                          const std::map<std::string, PlacedInput>& stored = {});

}  // namespace gt
