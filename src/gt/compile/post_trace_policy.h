// Which passes a step goes through after the trace, and how it is compiled then.
//
// Model, placement and capture are the same under every policy; this is the one place that differs.
// A policy reads the configuration and returns a pipeline as text: everything it decides can be
// printed, stored and run again by `gt opt`.
#pragma once

#include <memory>
#include <string>

#include "gt/ir/graph.h"
#include "gt/job/sections/compile.h"

namespace gt {

struct Config;

class PostTracePolicy {
 public:
  virtual ~PostTracePolicy() = default;

  // The passes of a captured or placed step (passes/framework/registry.h), before --compile.passes
  // changes them. `overlap` says how the step is cut into chunks; its `enabled` is not auto.
  virtual std::string PipelineFor(const Graph& graph, const EpOverlapSection& overlap) const = 0;
};

// The policy that compile.inductor_compilation names: gt's own, or that of AutoParallel's backend.
// Kernels are generated for steps on a GPU. The configuration must outlive it.
std::unique_ptr<PostTracePolicy> MakePostTracePolicy(const Config& config, bool on_gpu);

}  // namespace gt
