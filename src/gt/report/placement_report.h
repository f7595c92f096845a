// A placement for people: what it takes, where parameters are, and what each kind of module computes and
// sends.
#pragma once

#include <string>
#include <vector>

#include "gt/placement/place.h"

namespace gt {

// Modules that are alike in repeated layers are one row: layers.*.attention.wq.
struct PlacedModule {
  std::string module;
  std::string layout;    // of its largest result in the forward
  double kernel_us = 0;  // of a rank, in the step
  double move_us = 0;
  int64_t collectives = 0;
  double moved_bytes = 0;  // through the links, of a rank
};
std::vector<PlacedModule> PlacedModules(const placement::PlaceProblem& problem,
                                        const placement::Placement& placement);

// Totals, parameters, modules.
std::string PlacementTable(const placement::PlaceProblem& problem,
                           const placement::Placement& placement, bool overlap);

// Why a node, parameter or input is laid out as it is: what the step would take with each of the other
// ways, best first, everything else being chosen anew. Fails with BadPin if nothing has that name.
std::string ExplainPlacement(const placement::PlaceProblem& problem,
                             const placement::Placement& placement, const std::string& name,
                             bool overlap);

}  // namespace gt
