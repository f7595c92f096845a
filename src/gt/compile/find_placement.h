// The placement of a job's step: searched on every mesh that the job allows, or read from a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/placement/device_mesh.h"
#include "gt/placement/plan.h"

namespace gt {

struct Config;

// --mesh; else the degrees of --parallelism.* as axes; else every mesh of that many ranks. Fails with
// BadMesh if none has as many ranks as the job.
std::vector<placement::DeviceMesh> MeshesOf(const Config& config, int64_t ranks);

struct FoundPlacement {
  placement::Plan plan;
  // The best hand-written layout by the same costs; empty: none fits.
  std::string rival = {};
  double rival_us = 0;
};

struct PlacementRequest {
  const Config& config;
  Graph& step;  // with global shapes; its nodes are numbered
  int64_t ranks = 1;
  int64_t batch = 1;         // sequences of all ranks
  int64_t memory_bytes = 0;  // that a rank may fill; 0: no limit
  std::string title = {};
  // What is demanded of inputs; hand-written layouts then do not compete.
  std::vector<placement::Pin> pins = {};
  std::vector<int64_t> mesh = {};  // the only one; empty: as the configuration says
  std::function<void(const std::string& mesh, double step_us, double bound_us)> progress = nullptr;
};

// The plan of least predicted time; hand-written layouts are candidates like any other. Fails with
// NoPlacement, naming the smallest memory that would do, if nothing fits.
FoundPlacement FindPlacement(const PlacementRequest& request);

// Fails with BadPlan.
placement::Plan ReadPlanFile(const std::string& path);

}  // namespace gt
