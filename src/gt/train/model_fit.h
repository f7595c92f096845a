// Refuses models that cannot fit before their modules are built: tens of thousands of layers take a
// minute to build and to capture, and then the memory for the graph itself runs out.
#pragma once

#include <c10/core/Device.h>

#include "gt/dist/world.h"
#include "gt/job/config.h"

namespace gt {

// DoesNotFit if parameters and the optimizer's two numbers for each of them exceed what all ranks have
// together. The size is estimated from the first 64 layers, so it takes well under a second; what it
// lets pass is measured exactly once the step is captured (train/memory_fit.h). A model that cannot be
// built is left to whoever builds it.
void RequireModelFits(const Config& config, const World& world, c10::Device device);

}  // namespace gt
