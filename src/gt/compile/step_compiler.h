// From a captured step to one that runs: the passes that the job's policy names
// (compile/post_trace_policy.h), and what they need to know of the job.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gt/compile/step_costs.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/ir/graph.h"
#include "gt/job/config.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/process_groups.h"
#include "gt/sim/timeline.h"

namespace gt {

class StepCompiler {
 public:
  enum class Audience {
    kJob,   // every rank compiles the same steps in the same order; the first rank decides for all
    kSelf,  // this rank alone looks at a step: no group is made and nothing is published
  };
  // `world` may be null, for graphs that are only looked at.
  StepCompiler(const Config& config, const Mesh& mesh, World* world, c10::Device device,
               JobCluster cluster, Audience audience = Audience::kJob);

  // Groups of a placed step that the world does not have are those of this mesh.
  void PlaceOn(placement::DeviceMesh mesh) { costs_.PlaceOn(std::move(mesh)); }

  // All passes, with chunks as `overlap` says (its `enabled` is not auto).
  PipelineReport Compile(Graph& graph, const EpOverlapSection& overlap);

  // Whether the step that was compiled last has an order that depends on what things cost.
  bool can_replan() const { return unordered_ != nullptr; }
  // A copy of that step before it was ordered, ready for Order(). The hints of its symbols may be
  // changed before that.
  std::unique_ptr<Graph> Unordered() const { return unordered_->Clone(); }
  PipelineReport Order(Graph& graph);

  // Nothing for a step without communication.
  std::optional<Timeline> Predict(const Graph& graph);
  // Whether predictions may be shown (StepCosts::is_known).
  bool predictions_are_known() const { return costs_.is_known(); }
  // Also of a step without communication, by costs of this rank.
  double StepMicroseconds(const Graph& graph) { return Simulate(graph, *costs_.For(graph)).step; }

 private:
  JobFacts Facts();
  PassList Passes() const;
  // `pipeline`: the name of these passes, for their dumps.
  PipelineReport Run(PassList passes, Graph& graph, PassContext& context,
                     const std::string& pipeline);
  bool Dumps() const;

  const Config config_;
  const Mesh mesh_;
  World* world_;
  c10::Device device_;
  Audience audience_;
  StepCosts costs_;
  std::unique_ptr<ProcessGroups> groups_;
  std::string pipeline_;   // of the step that was compiled last
  size_t passes_run_ = 0;  // so far, by all pipelines
  int orders_ = 0;         // made anew
  std::unique_ptr<Graph> unordered_;
};

}  // namespace gt
