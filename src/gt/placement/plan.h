// A placement to be kept: which layout every parameter, input and value of a step has, on which mesh,
// and what it was predicted to take. Written and read as JSON; AutoParallel's lists of parameter
// placements can be read as well.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gt/placement/place.h"
#include "gt/placement/plan_times.h"

namespace gt::placement {

struct Plan {
  // How a node is computed.
  struct NodeLayouts {
    std::vector<std::string> operands, results;
    friend bool operator==(const NodeLayouts&, const NodeLayouts&) = default;
  };

  std::vector<int64_t> mesh;
  std::string title;                          // of the job it was made for
  uint64_t step_hash = 0;                     // of the graph it was made for; 0: not known
  std::map<std::string, std::string> inputs;  // parameters, buffers, inputs: "S(0)R"
  std::map<std::string, NodeLayouts> nodes;   // by the name of their first result
  std::map<std::string, std::string> kept;    // values that are kept for several uses
  double step_us = 0, bound_us = 0;
  int64_t peak_bytes = 0;
  PlanTimes times;  // empty in plans that do not list them
};

Plan MakePlan(const PlaceProblem& problem, const Placement& placement, std::string title);

std::string ToJson(const Plan& plan);
// `file` is for messages. Fails with BadPlan.
Plan PlanFromJson(std::string_view text, std::string_view file);

// What differs between two plans, a line each: "layers.0.wq.weight  S(0)R  S(0)S(1)".
std::vector<std::string> Differences(const Plan& a, const Plan& b);

// The demands that make a search find this plan again. Fails with BadPlan if it is for another mesh, or
// names what the problem does not have.
std::vector<Pin> PinsOf(const Plan& plan, const DeviceMesh& mesh, const Graph& graph);

}  // namespace gt::placement
