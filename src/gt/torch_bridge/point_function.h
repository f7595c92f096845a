// Runs a graph that was written for single numbers on whole blocks of them: every scalar input is
// given a tensor, and because all operators on scalars are elementwise (or look numbers up in a
// captured tensor by index), broadcasting does the rest. This is how score and mask functions of
// attention run on a block of queries and keys.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <span>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

class PointFunction {
 public:
  // The graph must outlive the function. Throws when it holds an operator that does not work on
  // blocks: one that has sizes written into it.
  explicit PointFunction(const Graph& graph);

  // Inputs in graph order. Safe to call from several threads.
  at::Tensor operator()(std::span<const at::Tensor> inputs) const;

  // The result is the first input, whatever the others are.
  bool is_identity() const { return result_ == 0; }

 private:
  struct Call {
    c10::OperatorHandle handle;
    std::vector<c10::IValue> arguments;
    struct Slot {
      size_t argument;
      int64_t element;  // position in a list argument; -1: not a list
      size_t source;
    };
    std::vector<Slot> slots;
  };

  std::vector<Call> calls_;
  size_t input_count_ = 0;
  size_t result_ = 0;
};

}  // namespace gt
