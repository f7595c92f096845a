// Rows of a mixture of experts in a placed step: what each rank does with the rows of its own tokens, and
// how they travel to the ranks of their experts and back (placement/expert_rows.h says which ways there
// are).
//
// A layer is known by the node that sorts its rows. The first time that rows travel, ranks tell each other
// how many they will send; the same numbers serve all exchanges of the layer, forward and backward, also
// those of a copy of the layer that the backward recomputes: it sorts the same rows. The nodes and their
// metadata are those of a model with hand-written expert parallelism, so that passes treat both alike.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "gt/passes/placement/moves.h"

namespace gt {

class ExpertMoves {
 public:
  ExpertMoves(const Graph& whole, NodeMaker& make);

  // The node that sorts the rows that this one computes with; null: it is part of no such stretch.
  const Node* SortOf(const Node& node) const;
  // Whether this result is in the order of experts, or says where rows are in it.
  static bool IsInside(const Node& node);

  // The rank's own part of a layer: its sort. Called once for each sort, before anything that follows.
  void Begin(const Node& sort, const LocalTensor& sorted_experts);
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
    LocalTensor sorted = {};         // experts of the rank's rows, ascending
    int64_t experts = 0;             // of all ranks
    const Node* original = nullptr;  // the sort of which this one is a copy, or itself
    Value* own_ends = nullptr;
    AxisList axes = {};
    Shape sent = {}, received = {};
    Value* to_experts = nullptr;  // order of arrived rows
    Value* to_ranks = nullptr;    // and its inverse
    Value* arrived = nullptr;     // rows for each of the rank's experts
    Value* arrived_ends = nullptr;
  };
  // How many rows travel, which all copies of a sort have in common that sort in the same place.
  struct Counts {
    Placed sorted;
    AxisList axes;
    Shape sent = {}, received = {};
    Value* from_ranks = nullptr;  // rows that each rank sends to each of this rank's experts
  };
  Layer& LayerOf(const Node& sort) { return layers_.at(&sort); }
  Value* Count(const Layer& layer, bool right, bool narrow);
  // How many rows travel along these axes, and where they are then.
  void FindRows(Layer& layer, const Dim& rows, const AxisList& axes);
  const Counts* KnownCounts(const Layer& layer, const AxisList& axes) const;
  Counts ExchangeCounts(const Layer& layer, const Dim& rows, const AxisList& axes);
  void FindOrder(Layer& layer, Value* from_ranks);
  Shape ReadInts(Value* numbers, const Dim& sum, bool is_fact);
  Value* Reorder(Value* rows, Value* order);
  Value* SumOf(Value* x, int64_t dim);
  Value* StartsOf(Value* lengths);

  NodeMaker& make_;
  std::unordered_map<const Node*, const Node*> sort_of_;  // by node
  std::unordered_map<const Node*, Layer> layers_;         // by sort
  std::unordered_multimap<const Node*, Counts> counts_;   // by original sort
  int64_t exchanges_ = 0;
};

}  // namespace gt
