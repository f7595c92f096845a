#include "gt/passes/framework/bisect.h"

#include "gt/base/error.h"

namespace gt {
namespace {

Breaking At(const PassList& passes, size_t index) {
  return {static_cast<int64_t>(index), passes[index]->Spec()};
}

bool RunNamed(Pass& pass, Graph& graph, PassContext& context) {
  try {
    return pass.Run(graph, context);
  } catch (const Error& error) {
    Fail(error.code(), "pass {} failed: {}", pass.Spec(), error.message());
  }
}

std::optional<Breaking> LinearSearch(const PassList& passes, Graph& graph, PassContext& context,
                                     const GraphPredicate& holds) {
  for (size_t i = 0; i < passes.size(); ++i) {
    if (RunNamed(*passes[i], graph, context) && !holds(*graph.Clone())) return At(passes, i);
  }
  return std::nullopt;
}

void RunRange(const PassList& passes, size_t begin, size_t end, Graph& graph,
              PassContext& context) {
  context.Invalidate();
  for (size_t i = begin; i < end; ++i) RunNamed(*passes[i], graph, context);
}

}  // namespace

std::optional<Breaking> FirstBreaking(const PassList& passes, const Graph& graph,
                                      const GraphPredicate& holds, BisectSearch search,
                                      PassContext* given) {
  PassContext empty;
  PassContext& context = given == nullptr ? empty : *given;
  context.Invalidate();
  // The predicate gets copies, so that it may do with them what it likes.
  std::unique_ptr<Graph> good = graph.Clone();
  if (!holds(*graph.Clone())) return Breaking{};
  if (search == BisectSearch::kLinear) return LinearSearch(passes, *good, context, holds);

  // Invariant: `good` is the graph after `low` passes, and the predicate holds there and fails
  // after `high`.
  size_t low = 0;
  size_t high = passes.size();
  std::unique_ptr<Graph> all = good->Clone();
  RunRange(passes, 0, high, *all, context);
  if (holds(*all)) return std::nullopt;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    std::unique_ptr<Graph> graph_there = good->Clone();
    RunRange(passes, low, middle, *graph_there, context);
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
