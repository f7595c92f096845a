// Finds the pass that breaks something: bitwise equality with the reference executor, an operator
// count, whatever the predicate looks at.
#pragma once

#include <functional>
#include <optional>

#include "gt/passes/framework/pass.h"

namespace gt {

enum class BisectSearch {
  // Tests about log2(n) graphs. Finds the first breaking pass if what is broken stays broken;
  // otherwise one before which
  // the predicate holds and after which it does not, which is as good a lead.
  kBinary,
  // Tests after every pass that changed something. Always finds the first.
  kLinear,
};

struct Breaking {
  // Position in the list. -1: the predicate already fails on the graph as given.
  int64_t index = -1;
  std::string spec;  // of that pass
};

// True: the graph is still good. Running the graph costs far more than running passes, hence
// kBinary.
using GraphPredicate = std::function<bool(Graph&)>;

// Nothing if the predicate holds after all passes. The graph itself is left alone. Without a context
// the passes run as outside of a job.
std::optional<Breaking> FirstBreaking(const PassList& passes, const Graph& graph,
                                      const GraphPredicate& holds,
                                      BisectSearch search = BisectSearch::kBinary,
                                      PassContext* context = nullptr);

}  // namespace gt
