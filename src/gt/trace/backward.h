// Runs the backward of a captured loss: libtorch's autograd functions, in the order of libtorch's
// engine.
//
// The engine itself would give the same graph. But it puts all thread-local state in place before
// each function and back after it, which takes 40 % of a captured backward, and here one thread does
// everything: nothing changes in between.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <functional>
#include <vector>

namespace gt {

// Called before each function. Gradients of the same value from several functions are added up as they
// arrive: the sum is made on behalf of the function that ran last.
using EnterFunction = std::function<void(torch::autograd::Node& function)>;

// The gradients of `wanted`, which are leaves, given that of `loss`; undefined where the loss does not
// depend on one. Frees what the forward has saved.
std::vector<at::Tensor> RunBackward(const at::Tensor& loss, const at::Tensor& seed,
                                    const std::vector<at::Tensor>& wanted,
                                    const EnterFunction& enter);

}  // namespace gt
