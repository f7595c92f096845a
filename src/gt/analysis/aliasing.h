// Which values share memory, and which memory leaves the graph. Passes that merge nodes or drop
// copies ask here, so that no output starts to share memory with another output or with an input
// (passes/framework/pass.h says why).
#pragma once

#include <unordered_set>

#include "gt/ir/graph.h"

namespace gt {

// The value whose memory this one's producer looks into, or null if the producer allocates.
Value* ViewedValue(const Value& value);

// Memory that outputs of the graph show. Costs a walk from each output up its chain of views.
class EscapingStorage {
 public:
  explicit EscapingStorage(const Graph& graph);

  // Whether an output may show memory that this value's producer allocates.
  bool Contains(const Value& value) const { return values_.contains(&value); }
  // The uses of `from` become uses of `to`, which now escapes if `from` did.
  void Merge(const Value& from, const Value& to) {
    if (Contains(from)) values_.insert(&to);
  }

 private:
  std::unordered_set<const Value*> values_;
};

}  // namespace gt
