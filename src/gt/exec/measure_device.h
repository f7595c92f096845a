// Measures the rates of the CPU that this thread computes on, for predictions of steps that run here.
#pragma once

#include "gt/sim/cluster.h"

namespace gt {

// Takes about a third of a second. Ranks that share cores call it at the same time, so that each
// measures its share.
DeviceSpeed MeasureCpu();

}  // namespace gt
