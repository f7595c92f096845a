// Binds a graph's symbols to the sizes of real inputs, and refuses inputs that the graph was not
// captured for: wrong number, dtype, device or extent, a size outside its symbol's range, or one
// that breaks a guard.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

class InputBinder {
 public:
  explicit InputBinder(const Graph& graph);

  // Checks the inputs and stores the value of every input symbol in `values` (data symbols keep
  // what they are). Returns true if any value changed, so that what depends on sizes alone is
  // recomputed only then.
  bool Bind(std::span<const at::Tensor> inputs, std::vector<int64_t>& values) const;

 private:
  void CheckGuards(const std::vector<int64_t>& values) const;

  struct SizeCheck {
    int32_t input;
    int32_t dim;
    Dim expected;
    bool binds;  // the first place where a symbol is alone
  };
  const Graph& graph_;
  std::vector<SizeCheck> checks_;      // dimensions that mention symbols
  std::vector<c10::DimVector> sizes_;  // plain extents; -1 where there is a symbol
};

}  // namespace gt
