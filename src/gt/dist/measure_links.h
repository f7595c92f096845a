// Measures how long the collectives of a job take, for predictions of its steps.
#pragma once

#include "gt/dist/world.h"
#include "gt/sim/cluster.h"

namespace gt {

// Fills in links, contention and the number of ranks on a node. Every rank must call it; all get the
// same result. Groups of two ranks and of all ranks of a machine are measured, and the group of all
// ranks if they are on several machines.
void MeasureLinks(World& world, Cluster& cluster);

}  // namespace gt
