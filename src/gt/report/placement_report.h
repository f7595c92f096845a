// A placement for people: what it takes, where parameters are, and what each kind of module computes and
// sends.
#pragma once

#include <string>
#include <vector>

#include "gt/placement/place.h"

namespace gt {

// Totals, parameters, modules.
std::string PlacementTable(const placement::PlaceProblem& problem,
                           const placement::Placement& placement, bool overlap);

// Why a node, parameter or input is laid out as it is: what the step would take with each of the other
// ways, best first, everything else being chosen anew within the memory, as far as a short search gets.
// `search` is what the placement was found with. Fails with BadPin if nothing has that name.
std::string ExplainPlacement(const placement::PlaceProblem& problem,
                             const placement::Placement& placement, const std::string& name,
                             placement::SearchOptions search);

// Where a rank's step has parameters and inputs of the batch, a line for each layout: what the plan is, in
// short. Empty for a step that was not placed.
std::vector<std::string> PlacementLines(const Graph& placed);

}  // namespace gt
