#include "gt/passes/placement/expert_moves.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gt/base/error.h"
#include "gt/passes/framework/recomputed_name.h"

namespace gt {
namespace {

bool IsSort(const Node& node) {
  return ExpertMoves::IsInside(node) && node.op().order == DimOrder::kReordered &&
         node.operand_count() == 1 && node.operand(0)->type().rank() == 1 &&
         node.result_count() == 2;
}

bool IsLookup(const Node& node) {
  return node.op().order == DimOrder::kLookedUp && node.operand_count() == 2;
}

bool IsGrouped(const Node& node) { return node.op().work == Work::kGroupedProduct; }

// Experts of a grouped product: of its matrices, or of their gradient.
int64_t ExpertsOf(const Node& product, SymbolValues symbols) {
  const TensorType& matrices = product.operand(1)->type();
  const TensorType& stacked = matrices.rank() == 3 ? matrices : product.result()->type();
  return stacked.sizes[0].Evaluate(symbols);
}

}  // namespace

bool ExpertMoves::IsInside(const Node& node) {
  return node.meta().ep_role == EpRole::kDispatch || node.meta().ep_role == EpRole::kCombine;
}

// Follows rows and what says where they are, from the sort on, until they are back with their tokens.
ExpertMoves::ExpertMoves(const Graph& whole, NodeMaker& make) : make_(make) {
  std::unordered_map<const Value*, const Node*> routed;
  std::unordered_map<std::string, const Node*> sorts;  // by name
  for (const Node* node : whole.nodes()) {
    if (IsSort(*node)) {
      sort_of_[node] = node;
      sorts[node->result()->name()] = node;
      auto original = sorts.find(std::string(OriginalName(node->result()->name())));
      layers_[node].original = original == sorts.end() ? node : original->second;
      for (int32_t i = 0; i < 2; ++i) routed[node->result(i)] = node;
      continue;
    }
    const Node* sort = nullptr;
    bool first = false;
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      auto found = routed.find(node->operand(i));
      if (found == routed.end()) continue;
      sort = found->second;
      first = first || i == 0;
    }
    if (sort == nullptr) continue;
    sort_of_[node] = sort;
    if (IsGrouped(*node)) {
      layers_[sort].experts = ExpertsOf(*node, whole.shapes().Hints());
    }
    const bool back = IsInside(*node) && IsLookup(*node) && first;
    const bool sums = IsGrouped(*node) && node->result()->type().rank() == 3;
    if (back || sums) continue;
    for (int32_t i = 0; i < node->result_count(); ++i) routed[node->result(i)] = sort;
  }
}

const Node* ExpertMoves::SortOf(const Node& node) const {
  auto found = sort_of_.find(&node);
  return found == sort_of_.end() ? nullptr : found->second;
}

std::map<std::string, AxisList> ExpertMoves::AxesByModule() const {
  std::map<std::string, AxisList> axes;
  for (const auto& [sort, layer] : layers_) {
    if (!layer.axes.empty()) axes[sort->meta().module.str()] = layer.axes;
  }
  return axes;
}

void ExpertMoves::Begin(const Node& sort, const LocalTensor& sorted_experts) {
  LayerOf(sort).sorted = sorted_experts;
}

// For each expert, how many of the rank's rows are of experts before it, or of those and its own.
Value* ExpertMoves::Count(const Layer& layer, bool right, bool narrow) {
  Value* sorted = layer.sorted.value;
  GT_CHECK(sorted != nullptr && layer.experts > 0, "rows that no node has sorted");
  Value* numbers = make_.Arange(layer.experts, sorted->type().device);
  return make_.Make("aten::searchsorted.Tensor")
      .Set("sorted_sequence", sorted)
      .Set("self", numbers)
      .Set("out_int32", narrow)
      .Set("right", right)
      .Result();
}

Value* ExpertMoves::OwnEnds(const Node& sort) {
  Layer& layer = LayerOf(sort);
  if (layer.own_ends == nullptr) layer.own_ends = Count(layer, /*right=*/true, /*narrow=*/true);
  return layer.own_ends;
}

Value* ExpertMoves::SumOf(Value* x, int64_t dim) {
  return make_.Make("aten::sum.dim_IntList").Set("self", x).Set("dim", Shape{Dim(dim)}).Result();
}

Value* ExpertMoves::StartsOf(Value* lengths) {
  Value* ends = make_.Make("aten::cumsum").Set("self", lengths).Set("dim", Dim(0)).Result();
  return make_.Make("aten::sub.Tensor").Set("self", ends).Set("other", lengths).Result();
}

Shape ExpertMoves::ReadInts(Value* numbers, const Dim& sum, bool is_fact) {
  ShapeEnv& shapes = make_.graph().shapes();
  const int64_t count = *numbers->type().sizes[0].as_const();
  int64_t left = sum.Evaluate(shapes.Hints());
  Graph::Typed typed;
  Shape read;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t hint = left / (count - i);
    left -= hint;
    typed.bound_symbols.push_back(shapes.AddDataSymbol(hint));
    read.push_back(Dim::Symbol(typed.bound_symbols.back()));
  }
  make_.graph().InsertTyped(make_.Make("gt::read_ints").Set("self", numbers).Spec(),
                            std::move(typed));
  if (is_fact) shapes.AddFact(Sum(read), sum);
  return read;
}

void ExpertMoves::FindRows(Layer& layer, const Dim& rows, const AxisList& axes) {
  Meta meta = make_.meta();
  meta.ep_role = EpRole::kDispatch;
  meta.exchange = TokenExchange::kNone;
  const Counts* counts = KnownCounts(layer, axes);
  if (counts == nullptr) meta.phase = Phase::kForward;
  MetaScope scope(make_, meta);
  if (counts == nullptr) {
    counts = &counts_.emplace(layer.original, ExchangeCounts(layer, rows, axes))->second;
  }
  layer.axes = axes;
  layer.sent = counts->sent;
  layer.received = counts->received;
  FindOrder(layer, counts->from_ranks);
  layer.arrived = SumOf(counts->from_ranks, 0);
}

// Numbers that are read once more for a copy would be equal, but nothing could know that where its rows meet
// those of the original, and the host would wait for them again.
const ExpertMoves::Counts* ExpertMoves::KnownCounts(const Layer& layer,
                                                    const AxisList& axes) const {
  const auto [begin, end] = counts_.equal_range(layer.original);
  const auto found = std::find_if(begin, end, [&](const auto& entry) {
    return entry.second.axes == axes && SamePlace(entry.second.sorted, layer.sorted.placed);
  });
  return found == end ? nullptr : &found->second;
}

ExpertMoves::Counts ExpertMoves::ExchangeCounts(const Layer& layer, const Dim& rows,
                                                const AxisList& axes) {
  const int64_t ranks = make_.rank().SizeOf(axes), experts = layer.experts / ranks;
  Counts counts{layer.sorted.placed, axes};
  Value* ends = Count(layer, /*right=*/true, /*narrow=*/false);
  Value* starts = Count(layer, /*right=*/false, /*narrow=*/false);
  Value* own = make_.Make("aten::sub.Tensor").Set("self", ends).Set("other", starts).Result();
  Meta meta = make_.meta();
  {
    meta.exchange = TokenExchange::kCountExchange;
    MetaScope scope(make_, meta);
    const Shape even(static_cast<size_t>(ranks), Dim(experts));
    counts.from_ranks =
        make_.View(make_.AllToAll(own, even, even, axes), {Dim(ranks), Dim(experts)});
  }
  meta.exchange = TokenExchange::kCountSync;
  MetaScope scope(make_, meta);
  counts.sent = ReadInts(SumOf(make_.View(own, {Dim(ranks), Dim(experts)}), 1), rows, true);
  counts.received = ReadInts(SumOf(counts.from_ranks, 1), rows, false);
  ++exchanges_;
  return counts;
}

// Rows arrive in segments ordered by rank and, within it, by expert. They are wanted by expert and,
// within it, by rank.
void ExpertMoves::FindOrder(Layer& layer, Value* from_ranks) {
  const Shape sizes = from_ranks->type().sizes;
  const Dim rows = Sum(layer.received), segments = sizes[0] * sizes[1];
  auto transposed = [&](Value* x) {
    return make_.View(make_.Contiguous(make_.Permute(x, {1, 0})), {segments});
  };
  auto look_up = [&](Value* table, Value* index) {
    return make_.Make("aten::index_select")
        .Set("self", table)
        .Set("dim", Dim(0))
        .Set("index", index)
        .Result();
  };
  Value* starts = make_.View(StartsOf(make_.View(from_ranks, {segments})), sizes);
  Value* wanted_lengths = transposed(from_ranks);
  Value* wanted_starts = transposed(starts);
  Value* segment = make_.Make("aten::repeat_interleave.Tensor")
                       .Set("repeats", wanted_lengths)
                       .Set("output_size", rows)
                       .Result();
  Value* position = make_.Arange(rows, from_ranks->type().device);
  Value* within = make_.Make("aten::sub.Tensor")
                      .Set("self", position)
                      .Set("other", look_up(StartsOf(wanted_lengths), segment))
                      .Result();
  layer.to_experts = make_.Make("aten::add.Tensor")
                         .Set("self", look_up(wanted_starts, segment))
                         .Set("other", within)
                         .Result();
  Value* zeros = make_.Make("aten::zeros_like").Set("self", layer.to_experts).Result();
  layer.to_ranks = make_.Make("aten::scatter.src")
                       .Set("self", zeros)
                       .Set("dim", Dim(0))
                       .Set("index", layer.to_experts)
                       .Set("src", position)
                       .Result();
}

Value* ExpertMoves::Reorder(Value* rows, Value* order) {
  return make_.Make("aten::index_select")
      .Set("self", rows)
      .Set("dim", Dim(0))
      .Set("index", order)
      .Result();
}

Value* ExpertMoves::Send(const Node& sort, Value* rows, const AxisList& axes) {
  Layer& layer = LayerOf(sort);
  if (layer.arrived == nullptr) FindRows(layer, rows->type().sizes[0], axes);
  GT_CHECK(layer.axes == axes, "rows of one layer travel along different axes");
  Meta meta = make_.meta();
  meta.exchange = TokenExchange::kExchange;
  Value* by_rank = nullptr;
  {
    MetaScope scope(make_, meta);
    by_rank = make_.AllToAll(make_.Contiguous(rows), layer.received, layer.sent, axes);
  }
  return Reorder(by_rank, layer.to_experts);
}

Value* ExpertMoves::Return(const Node& sort, Value* rows, const AxisList& axes) {
  Layer& layer = LayerOf(sort);
  GT_CHECK(layer.arrived != nullptr && layer.axes == axes, "rows return that have not travelled");
  Value* by_rank = Reorder(rows, layer.to_ranks);
  Meta meta = make_.meta();
  meta.exchange = TokenExchange::kExchange;
  MetaScope scope(make_, meta);
  return make_.AllToAll(by_rank, layer.sent, layer.received, axes);
}

Value* ExpertMoves::ArrivedEnds(const Node& sort) {
  Layer& layer = LayerOf(sort);
  GT_CHECK(layer.arrived != nullptr, "a product of rows that have not arrived");
  if (layer.arrived_ends == nullptr) {
    layer.arrived_ends = make_.Make("aten::cumsum")
                             .Set("self", layer.arrived)
                             .Set("dim", Dim(0))
                             .Set("dtype", DType::kInt32)
                             .Result();
  }
  return layer.arrived_ends;
}

Dim ExpertMoves::ArrivedRows(const Node& sort) const { return Sum(layers_.at(&sort).received); }

}  // namespace gt
