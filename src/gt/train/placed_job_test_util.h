// Plans for jobs that a search would not find, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gt/compile/configured_model.h"
#include "gt/compile/single_device_step.h"
#include "gt/compile/step_request.h"
#include "gt/dist/mesh.h"
#include "gt/job/config.h"
#include "gt/placement/place.h"
#include "gt/placement/plan.h"
#include "gt/placement/sending_rows.h"
#include "gt/sim/cluster_path.h"
#include "gt/sim/link_model.h"
#include "gt/sim/node_cost.h"
#include "gt/testing/random_placement.h"
#include "gt/torch_bridge/device.h"

namespace gt {

// For the step of one job, on the mesh that it names.
class PlansFor {
 public:
  explicit PlansFor(const Config& config)
      : graph_(StepOf(config)),
        pricing_(placement::DeviceMesh::Parse(config.mesh), Links(), SpeedOf("cpu")) {}

  // One that nobody would choose. Ranks sum means of their shards at odd seeds.
  placement::Plan AtRandom(uint64_t seed) const {
    placement::ProblemOptions options;
    options.sum_means = seed % 2 == 1;
    const placement::PlaceProblem problem(*graph_, pricing_, options);
    return MakePlan(problem, testing::RandomPlacement(problem, seed), "random");
  }
  // The best one of a hand-written layout.
  placement::Plan ByHand(std::vector<placement::AxisUse> axes) const {
    placement::ProblemOptions options;
    options.axes = std::move(axes);
    options.finest_parameters = true;
    return Best(options);
  }
  // The best one in which rows travel to their experts along the last axis, and each rank has rows of its own.
  placement::Plan SendingRows() const {
    placement::ProblemOptions options;
    options.pins = placement::SendingRows(*graph_, pricing_.mesh());
    return Best(options);
  }

 private:
  // As the job places it.
  static std::unique_ptr<Graph> StepOf(const Config& config) {
    SetDeterministic(config.training.deterministic);  // which kernels of attention there are
    const ModelPtr model = BuildConfiguredModel(config);
    const bool on_gpu = config.device == DeviceChoice::kCuda;
    const c10::Device device = on_gpu ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
    const StepRequest request{*model, config, device, Mesh(config.parallelism, config.ranks, 0)};
    return SingleDeviceStep(request).graph().Clone();
  }
  static const LinkModel& Links() {
    static const LinkModel links(ReadCluster(ClusterPath("h100")));
    return links;
  }
  placement::Plan Best(const placement::ProblemOptions& options) const {
    const placement::PlaceProblem problem(*graph_, pricing_, options);
    const placement::Placement found = Search(problem, {});
    EXPECT_TRUE(found.feasible);
    return MakePlan(problem, found, "restricted");
  }

  std::unique_ptr<Graph> graph_;
  placement::Pricing pricing_;
};

}  // namespace gt
