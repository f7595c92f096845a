// Rows of a mixture of experts in a placed step: what each rank does with the rows of its own tokens, and
// how they travel to the ranks of their experts and back (placement/expert_rows.h says which ways there
// are).
//
// A layer is known by the node that sorts its rows. The first time that rows travel, ranks tell each other
// how many they will send; the same numbers serve all exchanges of the layer, forward and backward. The
// nodes and their metadata are those of a model with hand-written expert parallelism, so that passes
// treat both alike.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "gt/passes/placement/node_maker.h"

namespace gt {

class ExpertMoves {
 public:
  ExpertMoves(const Graph& whole, NodeMaker& make);

  // The node that sorts the rows that this one computes with; null: it is part of no such stretch.
  const Node* SortOf(const Node& node) const;
  // Whether this result is in the order of experts, or says where rows are in it.
  static bool IsInside(const Node& node);

  // The rank's own part of a layer: its sort. Called once for each sort, before anything that follows.
  void Begin(const Node& sort, Value* sorted_experts);
  // Where the rows of each expert end among the rank's rows, as the operand of a grouped product.
  Value* OwnEnds(const Node& sort);

  // The rank's rows in the order of experts become the rows of the rank's experts, along these axes.
  Value* Send(const Node& sort, Value* rows, const AxisList& axes);
  Value* Return(const Node& sort, Value* rows, const AxisList& axes);
  Value* ArrivedEnds(const Node& sort);
  // How many rows have arrived.
  Dim ArrivedRows(const Node& sort) const;

  int64_t exchanges() const { return exchanges_; }
  // By module whose rows travel: along which axes.
  std::map<std::string, AxisList> AxesByModule() const;

 private:
  struct Layer {
    Value* sorted = nullptr;  // experts of the rank's rows, ascending
    int64_t experts = 0;      // of all ranks
    Value* own_ends = nullptr;
    AxisList axes = {};
    Shape sent = {}, received = {};
    Value* to_experts = nullptr;  // order of arrived rows
    Value* to_ranks = nullptr;    // and its inverse
    Value* arrived = nullptr;     // rows for each of the rank's experts
    Value* arrived_ends = nullptr;
  };
  Layer& LayerOf(const Node& sort) { return layers_.at(&sort); }
  Value* Count(const Layer& layer, bool right, bool narrow);
  void Exchange(Layer& layer, const Dim& rows, const AxisList& axes);
  void FindOrder(Layer& layer, Value* from_ranks);
  Shape ReadInts(Value* numbers, const Dim& sum, bool is_fact);
  Value* Reorder(Value* rows, Value* order);
  Value* SumOf(Value* x, int64_t dim);
  Value* StartsOf(Value* lengths);

  NodeMaker& make_;
  std::unordered_map<const Node*, const Node*> sort_of_;  // by node
  std::unordered_map<const Node*, Layer> layers_;         // by sort
  int64_t exchanges_ = 0;
};

}  // namespace gt
