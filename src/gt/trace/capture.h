// Captures a function over a module as a graph: forward, loss and, if asked for, the gradients of
// every parameter, in one.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gt/ir/graph.h"

namespace gt {

// A dimension that stays open: the graph works for every size in the range that satisfies its
// guards. Dimensions with the same identity are the same symbol; equal extents alone make no two
// dimensions one.
struct SymbolicDim {
  std::string identity;
  int64_t low =
      2;  // size 1 has other strides and broadcasting: capture it separately if it is needed
  int64_t high = kUnbounded;
  // The extent is this many times the symbol: ranks that share a sequence see one part of it each,
  // and a part is then the symbol itself.
  int64_t multiple = 1;
};

struct StepInput {
  std::string name;
  std::vector<int64_t> sizes;  // for a symbolic dimension, the hint
  at::ScalarType dtype = at::kLong;
  std::vector<std::pair<int64_t, SymbolicDim>> symbolic = {};  // dimension -> how it stays open
};

// Prepares the inputs of a capture: marks dimensions as symbolic by the role of the input. Hooks
// run in order.
using PrepareInputs = std::function<void(std::span<StepInput>)>;

// What the captured function gets and returns. `inputs` are in the order of StepInputs.
using StepFunction = std::function<at::Tensor(std::span<const at::Tensor> inputs)>;

struct CaptureOptions {
  Device device;
  std::vector<PrepareInputs> hooks = {};
  std::string name = "step";
};

struct Captured {
  std::unique_ptr<Graph> graph;
  // What the graph's inputs are, in order: parameters and buffers of the module (empty tensors for
  // the step's own inputs) and constants that the program used.
  std::vector<at::Tensor> bound_inputs;
};

// Forward, loss and the gradients of all parameters that require one, as one graph: outputs are the
// loss, a gradient for each parameter that has one, and the new value of each buffer that the step
// changed. The module's tensors are not touched; they may be without data (meta device).
Captured CaptureTrainStep(torch::nn::Module& module, const StepFunction& loss,
                          std::vector<StepInput> inputs, const CaptureOptions& options = {});

// The function alone, without gradients; its result is the graph's only result (plus changed
// buffers).
Captured CaptureForward(torch::nn::Module& module, const StepFunction& function,
                        std::vector<StepInput> inputs, const CaptureOptions& options = {});

}  // namespace gt
