// Compares what an operator declares about itself (ir/operator_facts.h) with what libtorch's kernel
// does in one call on the CPU: which elements a view shows, whether elements of an operand matter at
// all, whether it is linear. What a call cannot show (whether somebody else uses the generator) is
// the harness's business.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "gt/ir/operator.h"

namespace gt::conformance {

using Tensors = std::vector<at::Tensor>;

struct ObservedCall {
  const Operator& op;
  const std::vector<Argument>& args;
  const Tensors& operands;
  const Tensors& results;
  // The same call with other operands of the same types; empty if libtorch rejects them.
  std::function<Tensors(const Tensors&)> repeat;
};

// The fact that does not hold, or nothing.
std::string CheckFacts(const ObservedCall& call);

}  // namespace gt::conformance
