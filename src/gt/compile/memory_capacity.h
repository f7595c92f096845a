// How much memory a rank has, and what the training loop fills of it besides the step's own tensors.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/sim/memory_curve.h"

namespace gt {

struct Config;

// What the training loop keeps in memory besides the step's own tensors. `placed_on`: the mesh of the plan of a
// placed step, whose groups are along its axes.
MemoryOptions StepMemory(const Config& config, const Mesh& mesh,
                         const std::vector<int64_t>& placed_on = {});

// Whether the job wants stretches of its step recorded on a GPU, and replayed.
bool RecordsSteps(const Config& config);

// Whether checkpoints are written from a copy of the state while the run continues.
bool CopiesForCheckpoints(const Config& config);

// Bytes that tensors of this rank may fill in the memory of its device, which ranks may share.
// --training.memory_limit_gb may allow less.
int64_t MemoryForRank(const World& world, c10::Device device);
// The same in the host's memory, for a rank on a GPU.
int64_t HostMemoryForRank(const World& world);

// Bytes of the device's memory that a job may plan with: training.memory_limit_gb, or 92 % of what
// the device has. For a step that is only looked at, the device is one of the cluster's GPUs. 0: not
// known.
int64_t MemoryCapacity(const Config& config, const World* world, c10::Device device);

}  // namespace gt
