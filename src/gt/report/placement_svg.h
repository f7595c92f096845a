// A placement as a picture.
#pragma once

#include <string>

#include "gt/placement/place.h"

namespace gt {

// A row for each kind of module, in the order in which they run: what every axis of the mesh cuts of its
// result, as a coloured cell; how its parameters are laid out; and bars for the time of its kernels and
// of its moves. Inputs come first. `title` is above it, with the mesh and the totals.
std::string PlacementSvg(const placement::PlaceProblem& problem,
                         const placement::Placement& placement, const std::string& title);

}  // namespace gt
