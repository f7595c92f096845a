// What is asked of the compiler of steps.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "gt/compile/job_cluster.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/models/model.h"

namespace gt {

struct Config;

// All that decides what the step of this rank is. Model and configuration are used during Compile
// alone; `world` is used as long as the step may be replanned.
struct StepRequest {
  LanguageModel& model;  // may be without memory
  const Config& config;
  c10::Device device;
  Mesh mesh = Mesh();
  // The job's, whose groups a step that is to run must find; null for a graph that is only looked at.
  World* world = nullptr;
  // What predictions count with; without one, the configured cluster.
  JobCluster cluster = {};
  // The batch dimension is a symbol: the step runs batches of any size.
  bool symbolic_batch = false;
  // The file of the plan that this run has followed so far, of a placed job that continues; empty: none.
  std::string continued_plan = "";
};

}  // namespace gt
