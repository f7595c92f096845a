// What the operators and collectives of a job's step cost, for schedules and predictions: estimated, or
// measured on the device and kept in a file (--compile.costs, --compile.costs_file).
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>

#include "gt/compile/job_cluster.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/placement/device_mesh.h"
#include "gt/sim/cost_model.h"
#include "gt/sim/link_model.h"

namespace gt {

class StepCosts {
 public:
  // `world` may be null: groups are then as large as the graph says, on neighboring ranks.
  // Without a cluster, the configured one counts.
  StepCosts(const Config& config, World* world, c10::Device device, JobCluster cluster = {});

  // Groups that a placed step names, and that `world` does not have, are those of this mesh.
  void PlaceOn(placement::DeviceMesh mesh) { placed_on_ = std::move(mesh); }
  // Sizes of its axes; empty: the layout is hand-written.
  std::vector<int64_t> placed_on() const {
    return placed_on_ ? placed_on_->sizes() : std::vector<int64_t>();
  }

  // For a graph of this job; the first rank measures what is not known yet, if that is wanted. The
  // model must not outlive this object.
  std::unique_ptr<CostModel> For(const Graph& graph);

  // What the first rank has measured becomes known to all; every rank must call it at the same point.
  void Share(const Graph& graph);

  // Whether times may be shown as estimates: they are those of the device and links that the step is for.
  bool is_known() const { return cluster_.is_known; }

  // "compute as estimated for hopper, links of h100"
  std::string Describe();

 private:
  const LinkModel& links();
  DeviceSpeed Speed();
  bool decides() const { return world_ == nullptr || world_->first() || world_->pretended(); }
  void Learn(const Graph& graph);
  std::map<std::string, GroupSpan, std::less<>> SpansOf(const Graph& graph);

  Config config_;
  World* world_;
  c10::Device device_;
  std::optional<placement::DeviceMesh> placed_on_;
  JobCluster cluster_;
  std::optional<LinkModel> links_;  // read when they are needed: most steps of one rank never do
  std::string file_;
  bool uses_table_ = false;
  CostTable table_;
};

}  // namespace gt
