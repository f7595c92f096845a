// The cluster that the predictions of a job count with: the configured one for steps on GPUs, and
// this machine, measured, for ranks on CPUs.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "gt/dist/world.h"
#include "gt/sim/cluster.h"

namespace gt {

struct Config;

struct JobCluster {
  std::shared_ptr<const Cluster> cluster;
  // False: rates of some CPU, good enough to order a step, but not to be shown as an estimate.
  bool is_known = true;
};

// Every rank must call it; all get the same answer. CPU ranks are measured unless an earlier run with
// as many ranks on a machine like this one has left its measurement in the user's cache.
JobCluster ClusterOfJob(const Config& config, World& world, c10::Device device);

// The same for a command that runs nothing: a step for CPUs counts with up to kMostMeasured ranks as
// threads of this process, measured if need be.
JobCluster ClusterOfPlan(const Config& config);
inline constexpr int64_t kMostMeasured = 32;

// Measures the CPU and, for several ranks, the links between them. Every rank must call it.
Cluster MeasureCluster(World& world);

}  // namespace gt
