// How long the step of a configuration would take and what it would need.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <utility>

#include "gt/compile/job_cluster.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"

namespace gt {

struct Config;

// What the step of a configured model would take, for comparing configurations: built, captured and
// compiled by this rank alone, without memory. ep_overlap.enabled is not auto.
struct Prediction {
  double microseconds = 0;
  int64_t peak = 0;
  int64_t excess = 0;  // of the peak, beyond what the device has; 0: it fits
  // What fits is better than what does not.
  bool IsBetterThan(const Prediction& other) const {
    return std::pair(excess, microseconds) < std::pair(other.excess, other.microseconds);
  }
};
Prediction PredictStep(const Config& config, const Mesh& mesh, World* world, c10::Device device,
                       const JobCluster& cluster);

}  // namespace gt
