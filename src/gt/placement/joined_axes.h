// Meshes with fewer axes as a place to begin: what is placed on 4x64 is placed on 4x8x8 as well, with two
// axes that do the same.
#pragma once

#include <cstdint>
#include <vector>

#include "gt/placement/place_problem.h"

namespace gt::placement {

// The mesh with its first `split` axes as one and the others as another. `split` is at least 1 and less
// than the number of axes.
DeviceMesh JoinAxes(const DeviceMesh& mesh, int split);

// The labels on the finer mesh for labels on one that JoinAxes() made of it; empty if the finer problem
// does not have all of them. Both problems are of the same graph.
std::vector<int32_t> LabelsOnFinerMesh(const PlaceProblem& joined,
                                       const std::vector<int32_t>& labels, int split,
                                       const PlaceProblem& finer);

}  // namespace gt::placement
