#include "gt/passes/framework/bisect.h"

namespace gt {
namespace {

Breaking At(const PassList& passes, size_t index) {
  return {static_cast<int64_t>(index), passes[index]->Spec()};
}

std::optional<Breaking> LinearSearch(const PassList& passes, Graph& graph,
                                     const GraphPredicate& holds) {
  for (size_t i = 0; i < passes.size(); ++i) {
    if (passes[i]->Run(graph) && !holds(*graph.Clone())) return At(passes, i);
  }
  return std::nullopt;
}

void RunRange(const PassList& passes, size_t begin, size_t end, Graph& graph) {
  for (size_t i = begin; i < end; ++i) passes[i]->Run(graph);
}

}  // namespace

std::optional<Breaking> FirstBreaking(const PassList& passes, const Graph& graph,
                                      const GraphPredicate& holds, BisectSearch search) {
  // The predicate gets copies, so that it may do with them what it likes.
  std::unique_ptr<Graph> good = graph.Clone();
  if (!holds(*graph.Clone())) return Breaking{};
  if (search == BisectSearch::kLinear) return LinearSearch(passes, *good, holds);

  // Invariant: `good` is the graph after `low` passes, and the predicate holds there and fails
  // after `high`.
  size_t low = 0;
  size_t high = passes.size();
  std::unique_ptr<Graph> all = good->Clone();
  RunRange(passes, 0, high, *all);
  if (holds(*all)) return std::nullopt;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    std::unique_ptr<Graph> graph_there = good->Clone();
    RunRange(passes, low, middle, *graph_there);
    if (holds(*graph_there->Clone())) {
      good = std::move(graph_there);
      low = middle;
    } else {
      high = middle;
    }
  }
  return At(passes, low);
}

}  // namespace gt
