// What would make a step fit that does not.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "gt/config/config.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/sim/memory_curve.h"

namespace gt {

// What the training loop keeps in memory besides the step's own tensors.
MemoryOptions StepMemory(const Config& config, const Mesh& mesh);

// Bytes that tensors of this rank may fill in the memory of its device, which ranks may share.
// --training.memory_limit_gb may allow less.
int64_t MemoryForRank(const World& world, c10::Device device);
// The same in the host's memory, for a rank on a GPU.
int64_t HostMemoryForRank(const World& world);

// The peak of the step with other options, each as a line with its command line flag, and whether that
// would be within `available` bytes. Captures the step once for each, which takes no memory to speak
// of. Ends in a newline.
std::string MemoryAdvice(const Config& config, World& world, const Mesh& mesh, c10::Device device,
                         int64_t available);

}  // namespace gt
